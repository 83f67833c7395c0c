"""Estimate two-view geometry from matching points: one plane, or a scene.

With x0 and x1 = (x, y, 1) of a match in image 0 and image 1, and K0, K1 the matrices of the cameras

    homography   x1 ~ H x0                        points of one plane; all, if a camera only turns
    fundamental  x1^T F x0 = 0                    points of a scene
    essential    (K1^-1 x1)^T E K0^-1 x0 = 0      the same with known cameras: E = [t]x R,
                                                  where X1 = R X0 + t are the points in space

Random samples find a model, robust least squares refine it (`refine`); inliers are those of the
refined model. OpenCV's MAGSAC searches homographies and fundamental matrices, PoseLib poses and
fundamental matrices; without PoseLib, OpenCV's USAC searches poses. `auto` chooses the plane unless
enough inliers of the scene lie clearly off it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import ArrayLike

from kd_cv.checks import as_positive
from kd_cv.matching.geometry import (
    as_points,
    cross_matrix,
    epipolar_errors,
    in_front,
    reprojection_errors,
)
from kd_cv.matching.refine import (
    Pose,
    refine_fundamental,
    refine_homography,
    refine_pose,
    unit,
)
from kd_cv.types import Float64, Mask

Model = Literal["homography", "fundamental", "essential"]
MODELS = (*get_args(Model), "auto")
#: Matches that each needs.
NEEDED = {"homography": 4, "fundamental": 8, "essential": 5}
#: Names of models, and words for inliers and outliers.
NAMES = {"homography": "homography", "fundamental": "fundamental matrix", "essential": "pose"}
WORDS = {
    "homography": ("on the plane", "off the plane"),
    "fundamental": ("on the epipolar line", "off the epipolar line"),
    "essential": ("on the epipolar line", "off the epipolar line"),
}
#: `auto` takes a scene if more than MANY + OFF_PLANE n of its n inliers lie more than twice the
#: threshold off the plane: even flat walls have false matches near their epipolar lines.
OFF_PLANE = 0.02
#: More inliers than MANY plus a fraction BELIEVED are not chance (Brown and Lowe, 2007).
MANY, BELIEVED = 8, 0.3
#: Scale of the Cauchy loss of each model in pixels; with sizes, of a homography at the median size.
SCALES = {"homography": 1.5, "fundamental": 0.3, "essential": 0.3}
SIZED = 3.0
#: Refinements, each on the inliers of the last.
ROUNDS = 2
#: Largest threshold in pixels of the search for a fundamental matrix or pose.
SCENE_THRESHOLD = 1.0
#: OpenCV's searches for a pose: many samples of five points are nearly degenerate.
SEARCHES = 5
ITERATIONS, CONFIDENCE = 10_000, 0.9999
SINGULAR = 1e12  # condition number of a homography that maps the plane to a line


@dataclass(frozen=True)
class TwoViews:
    """The model of two views; `matrix` is None if there is none.

    model    "homography", "fundamental" or "essential"
    matrix   (3, 3): H_0to1, F_0to1 or E_0to1
    inliers  (M,) matches within the threshold
    R_0to1, t_0to1  (3, 3) and (3,) of unit length: X1 = R X0 + t; of "essential" only
    """

    model: Model
    matrix: Float64 | None
    inliers: Mask
    R_0to1: Float64 | None = None
    t_0to1: Float64 | None = None

    @property
    def success(self) -> bool:
        return self.matrix is not None and believable(int(self.inliers.sum()), len(self.inliers))


def estimate(
    points0: ArrayLike,
    points1: ArrayLike,
    model: str = "homography",
    *,
    threshold: float = 3.0,
    K0: ArrayLike | None = None,
    K1: ArrayLike | None = None,
    sizes: ArrayLike | None = None,
) -> TwoViews:
    """Estimate the model of matches points0 (M, 2) and points1 (M, 2).

    model      "homography", "fundamental", "essential" or "auto"
    threshold  of an inlier, in pixels: to its place in image 1, or to its epipolar line
    K0, K1     (3, 3) camera matrices; required for "essential", and with them "auto" may choose it
    sizes      (M,) of the keypoints: a homography gives small ones more weight

    >>> points0 = np.random.default_rng(0).uniform(0, 500, (50, 2))
    >>> estimate(points0, points0 + 10, "auto").model
    'homography'
    """
    points0, points1 = as_points(points0, "points0"), as_points(points1, "points1")
    if len(points0) != len(points1):
        raise ValueError(
            f"expected as many points0 as points1, got {len(points0)} and {len(points1)}"
        )
    if not (np.isfinite(points0).all() and np.isfinite(points1).all()):
        raise ValueError("points0 and points1 must be finite numbers")
    check_model(model, K0 is not None and K1 is not None)
    threshold = as_positive(threshold, "threshold")
    if model == "homography":
        return TwoViews("homography", *find_homography(points0, points1, threshold, sizes))
    if model == "fundamental":
        return TwoViews("fundamental", *find_fundamental(points0, points1, threshold))
    if model == "essential":
        return find_pose(points0, points1, K0, K1, threshold)  # type: ignore[arg-type]
    plane = TwoViews("homography", *find_homography(points0, points1, threshold, sizes))
    if K0 is not None and K1 is not None:
        scene = find_pose(points0, points1, K0, K1, threshold)
    else:
        scene = TwoViews("fundamental", *find_fundamental(points0, points1, threshold))
    if plane.matrix is None or not plane.success:
        return scene if scene.success else plane
    errors = reprojection_errors(points0, points1, plane.matrix)
    return plane if is_plane(errors, scene, threshold) else scene


def check_model(model: str, cameras: bool) -> None:
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}: expected one of {list(MODELS)}")
    if model == "essential" and not cameras:
        raise ValueError("model 'essential' needs the camera matrix of both images")


def is_plane(errors: Float64, scene: TwoViews, threshold: float) -> bool:
    """Whether a plane at distances `errors` (M,) in pixels explains the scene."""
    if not scene.success:
        return True
    errors = errors[scene.inliers]
    return bool((errors > 2 * threshold).sum() <= MANY + OFF_PLANE * len(errors))


def find_homography(
    points0: Float64, points1: Float64, threshold: float = 3.0, sizes: ArrayLike | None = None
) -> tuple[Float64 | None, Mask]:
    """Return H_0to1, or None, and its inliers (M,). sizes: see `estimate`."""
    if len(points0) < NEEDED["homography"]:
        return _nothing(points0)
    scales = np.full(len(points0), SCALES["homography"])
    if sizes is not None:  # a keypoint is localised to a fraction of its size
        scales = np.asarray(sizes, np.float64)
        scales = SIZED * scales / np.median(scales)
    H, inliers = _by_opencv(
        cv2.findHomography, points0, points1, cv2.USAC_MAGSAC, threshold,
        maxIters=ITERATIONS, confidence=CONFIDENCE,
    )  # fmt: skip
    if H is None:
        return _nothing(points0)
    for _ in range(ROUNDS):
        inliers = reprojection_errors(points0, points1, H) <= threshold
        if inliers.sum() <= NEEDED["homography"] or np.linalg.cond(H) > SINGULAR:
            return H, inliers
        H = refine_homography(H, points0[inliers], points1[inliers], scales[inliers])
    H = H / H[2, 2] if H[2, 2] != 0 else H
    return H, reprojection_errors(points0, points1, H) <= threshold


def find_fundamental(
    points0: Float64, points1: Float64, threshold: float = 3.0
) -> tuple[Float64 | None, Mask]:
    """Return F_0to1 of unit norm, or None, and its inliers (M,)."""
    if len(points0) < NEEDED["fundamental"]:
        return _nothing(points0)
    F = _search_fundamental(points0, points1, min(threshold, SCENE_THRESHOLD))
    if F is None:
        return _nothing(points0)
    for _ in range(ROUNDS):
        inliers = epipolar_errors(points0, points1, F) <= threshold
        if inliers.sum() < NEEDED["fundamental"]:
            return F, inliers
        F = refine_fundamental(F, points0[inliers], points1[inliers], SCALES["fundamental"])
    return F, epipolar_errors(points0, points1, F) <= threshold


def find_pose(
    points0: Float64, points1: Float64, K0: ArrayLike, K1: ArrayLike, threshold: float = 3.0
) -> TwoViews:
    """Return E_0to1 = [t]x R, its inliers (M,) and the pose, for cameras K0 and K1.

    Matches whose point lies behind a camera are outliers.
    """
    K0, K1 = as_camera(K0, "K0"), as_camera(K1, "K1")
    rays0, rays1 = rays(points0, K0), rays(points1, K1)
    pose = None
    if len(points0) >= NEEDED["essential"]:
        focal = float(np.mean([K0[0, 0], K0[1, 1], K1[0, 0], K1[1, 1]]))
        search = _search_opencv if _poselib() is None else _search_poselib
        pose = search(rays0, rays1, focal, min(threshold, SCENE_THRESHOLD))
    if pose is None:
        return TwoViews("essential", *_nothing(points0))

    def agree(pose: Pose) -> Mask:
        F = fundamental_of(cross_matrix(pose[1]) @ pose[0], K0, K1)
        errors = epipolar_errors(points0, points1, F)
        return (errors <= threshold) & in_front(rays0, rays1, *pose)

    for _ in range(ROUNDS):
        inliers = agree(pose)
        if inliers.sum() <= NEEDED["essential"]:
            break
        pose = refine_pose(pose, points0[inliers], points1[inliers], (K0, K1), SCALES["essential"])
    return TwoViews("essential", cross_matrix(pose[1]) @ pose[0], agree(pose), *pose)


def fundamental_of(E_0to1: Float64, K0: Float64, K1: Float64) -> Float64:
    """F_0to1 = K1^-T E K0^-1, of unit norm."""
    return unit(np.linalg.inv(K1).T @ E_0to1 @ np.linalg.inv(K0))


@lru_cache(maxsize=1)
def _poselib() -> Any:
    try:
        import poselib
    except ImportError:
        return None
    return poselib


def _search_fundamental(points0: Float64, points1: Float64, threshold: float) -> Float64 | None:
    """Search by MAGSAC, which tolerates more outliers, and PoseLib; return the better F_0to1."""
    F, _ = _by_opencv(
        cv2.findFundamentalMat, points0, points1, cv2.USAC_MAGSAC, threshold, CONFIDENCE, ITERATIONS
    )
    found: list[Any] = [F]
    if _poselib() is not None:
        options = {**_options(threshold), "max_iterations": 1000}
        found.append(_poselib().estimate_fundamental(points0, points1, options, {})[0])
    found = [unit(F) for F in found if F is not None and np.isfinite(F).all() and F.any()]
    return min(
        found,
        key=lambda F: _truncated(epipolar_errors(points0, points1, F), threshold),
        default=None,
    )


def _truncated(errors: Float64, threshold: float) -> float:
    return float((np.minimum(errors, threshold) ** 2).sum())


def _search_poselib(rays0: Float64, rays1: Float64, focal: float, threshold: float) -> Pose | None:
    """Search the pose of rays (M, 2) by PoseLib; threshold in pixels of this focal length."""
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [focal, 0, 0]}
    pose, found = _poselib().estimate_relative_pose(
        focal * rays0, focal * rays1, camera, camera, _options(threshold), {}
    )
    if not found["num_inliers"] or not np.isfinite(pose.Rt).all() or not np.any(pose.t):
        return None
    return np.array(pose.R), unit(np.array(pose.t))


def _options(threshold: float) -> dict[str, float]:
    return {
        "max_epipolar_error": threshold,
        "min_iterations": 200,
        "max_iterations": ITERATIONS,
        "success_prob": CONFIDENCE,
    }


def _search_opencv(rays0: Float64, rays1: Float64, focal: float, threshold: float) -> Pose | None:
    """Search the pose several times by OpenCV; keep the least truncated squared errors."""
    best, pose = np.inf, None
    rng = np.random.default_rng(0)
    for _ in range(SEARCHES):
        order = rng.permutation(len(rays0))
        x0, x1 = rays0[order], rays1[order]
        # Graph cuts find what MAGSAC misses here.
        E, inliers = _by_opencv(
            cv2.findEssentialMat, x0, x1, np.eye(3), cv2.USAC_ACCURATE, CONFIDENCE,
            threshold / focal, ITERATIONS,
        )  # fmt: skip
        if E is None or not inliers.any():
            continue
        _, R, t, _ = cv2.recoverPose(E, x0[inliers], x1[inliers])
        errors = focal * epipolar_errors(rays0, rays1, cross_matrix(t.ravel()) @ R)
        errors[~in_front(rays0, rays1, R, t.ravel())] = np.inf
        cost = _truncated(errors, threshold)
        if cost < best:
            best, pose = cost, (R, t.ravel())
    return pose


def believable(inliers: int, matches: int) -> bool:
    """Whether inliers exceed chance: n_i > 8 + 0.3 n_f (Brown and Lowe, 2007)."""
    return inliers > MANY + BELIEVED * matches


def as_camera(K: ArrayLike, name: str) -> Float64:
    """Check a camera matrix (3, 3): focal lengths above zero, last row 0 0 1."""
    try:
        K = np.asarray(K, np.float64)
    except OverflowError as error:
        raise ValueError(f"{name} must hold finite numbers: {error}") from error
    if K.shape != (3, 3):
        raise ValueError(f"{name} must be (3, 3), got shape {K.shape}")
    if not np.isfinite(K).all() or K[0, 0] <= 0 or K[1, 1] <= 0 or K[2].tolist() != [0, 0, 1]:
        raise ValueError(
            f"{name} must be a camera matrix [[fx, s, cx], [0, fy, cy], [0, 0, 1]] with positive "
            f"focal lengths, got {K.tolist()}"
        )
    return K


def camera_of(focal: float, shape: tuple[int, ...]) -> Float64:
    """Return the matrix of a camera centred on an image (H, W); focal in pixels."""
    height, width = shape[:2]
    return np.array([[focal, 0, (width - 1) / 2], [0, focal, (height - 1) / 2], [0, 0, 1.0]])


def rays(points: Float64, K: Float64) -> Float64:
    """Return points (M, 2) in the image plane at distance 1: the first two of K^-1 (x, y, 1)."""
    directions = np.linalg.solve(K, np.column_stack([points, np.ones(len(points))]).T).T
    return np.ascontiguousarray(directions[:, :2])


def _nothing(points: Float64) -> tuple[None, Mask]:
    return None, np.zeros(len(points), dtype=bool)


def _by_opencv(
    find: Any, points0: Float64, points1: Float64, *args: Any, **options: Any
) -> tuple[Float64 | None, Mask]:
    """Call an estimator of OpenCV; return (3, 3) and (M,), or None and no inliers.

    OpenCV may return None, or empty, infinite or several matrices, or raise if points coincide.
    """
    try:
        matrix, mask = find(points0, points1, *args, **options)
    except cv2.error:
        return _nothing(points0)
    if matrix is None or mask is None or matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        return _nothing(points0)
    return matrix, mask.ravel().astype(bool)
