"""Scenes of one photograph and random warps of it, linked by the homographies.

Keypoints are linked where a homography maps one to the other. Descriptors are never compared: the
pairs do not depend on a descriptor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kd_cv.checks import as_int
from kd_cv.descriptor.frames import radians
from kd_cv.detector.settings import CONTRAST
from kd_cv.fit.scenes import NO_POINT, Scene, View
from kd_cv.opencv.dog import DoG
from kd_cv.types import Float64, Gray

# Points (N, 2) of one view -> points (N, 2) and Jacobians (N, 2, 2) in another, NaN where unseen.
PointMap = Callable[[Float64], tuple[Float64, Float64]]

MAX_ANISOTROPY = 2.5  # of a map: a frame is a similarity and cannot follow

# Largest differences between the detected and the predicted frame of a point.
MAX_DISTANCE = 2.5  # pixels
MAX_RELATIVE_DISTANCE = 0.15  # or this part of the keypoint's size, whichever is larger
MAX_SIZE_RATIO = 1.5
MAX_TURN = 30.0  # degrees


def homography_map(H_0to1: Float64) -> PointMap:
    """Return the point map of a homography; a point mapped to or past infinity is unseen."""

    def point_map(xy: Float64) -> tuple[Float64, Float64]:
        X = np.concatenate([xy, np.ones((len(xy), 1))], axis=1) @ H_0to1.T
        # The sign of H is free; inside the image the denominator keeps the sign of the determinant.
        w = X[:, 2:] * np.sign(np.linalg.det(H_0to1))
        w = np.where(w > 1e-12, X[:, 2:], np.nan)
        mapped = X[:, :2] / w
        # d(x/w) = (dx - (x/w) dw) / w
        J = (H_0to1[None, :2, :2] - mapped[:, :, None] * H_0to1[None, 2:, :2]) / w[:, :, None]
        return mapped, J

    return point_map


def transfer_frames(
    frames: Float64, point_map: PointMap, max_anisotropy: float = MAX_ANISOTROPY
) -> Float64:
    """Map frames (N, 4) by a point map; NaN where a point is unseen, mirrored or squeezed.

    The Jacobian J is replaced by its nearest similarity: size * sqrt(det J), angle + the rotation
    of J's polar decomposition.
    """
    xy, J = point_map(frames[:, :2])
    a, b, c, d = J[:, 0, 0], J[:, 0, 1], J[:, 1, 0], J[:, 1, 1]
    det = a * d - b * c
    with np.errstate(invalid="ignore", divide="ignore"):
        # s1 / s2 + s2 / s1 = |J|_F^2 / det
        squeeze = (a * a + b * b + c * c + d * d) / det
        seen = (det > 0) & (squeeze <= max_anisotropy + 1 / max_anisotropy)
    out = np.full(frames.shape, np.nan)
    out[seen, :2] = xy[seen]
    out[seen, 2] = frames[seen, 2] * np.sqrt(det[seen])
    turn = np.arctan2(c - b, a + d)
    out[seen, 3] = np.degrees(radians(frames[:, 3]) + turn)[seen] % 360.0
    return out


def near_pairs(
    points: Float64, others: Float64, reach: Float64
) -> tuple[NDArray[np.int64], NDArray[np.int64], Float64]:
    """Return i of points (N, 2), j of others within reach (N,) of them, and the distances."""
    near = cKDTree(others).query_ball_point(points, reach)
    i = np.repeat(np.arange(len(points)), [len(found) for found in near])
    j = np.fromiter(itertools.chain.from_iterable(near), np.int64, len(i))
    return i, j, np.linalg.norm(points[i] - others[j], axis=1)


def candidate_pairs(predicted: Float64, frames: Float64) -> tuple[NDArray[np.int64], Float64]:
    """Pair predicted and detected frames of one view that agree: pairs (M, 2), cost (M,).

    The cost is the sum of squares of distance, log size ratio and angle, relative to their limits.
    """
    seen = np.flatnonzero(np.isfinite(predicted).all(axis=1))
    reach = np.maximum(MAX_DISTANCE, MAX_RELATIVE_DISTANCE * predicted[seen, 2])
    near, j, distance = near_pairs(predicted[seen, :2], frames[:, :2], reach)
    i = seen[near]
    size = np.abs(np.log(predicted[i, 2] / frames[j, 2])) / np.log(MAX_SIZE_RATIO)
    turn = (predicted[i, 3] - frames[j, 3] + 180.0) % 360.0 - 180.0
    parts = np.stack([distance / reach[near], size, np.abs(turn) / MAX_TURN])
    good = (parts <= 1).all(axis=0)
    return np.stack([i, j], axis=1)[good], (parts[:, good] ** 2).sum(axis=0)


def link_to_first(frames: Sequence[Float64], H_1tok: Float64) -> list[NDArray[np.int64]]:
    """Give keypoints of images of one plane the index of the same keypoint in image 1, or NO_POINT.

    frames: per image (N_i, 4). H_1tok: (K, 3, 3), from image 1 to each. The best pairs are linked
    first, each keypoint once.
    """
    ids = [np.full(len(view), NO_POINT, np.int64) for view in frames]
    for own, view, H in zip(ids[1:], frames[1:], H_1tok[1:], strict=True):
        pairs, cost = candidate_pairs(transfer_frames(frames[0], homography_map(H)), view)
        taken: set[int] = set()
        for i, j in pairs[np.argsort(cost, kind="stable")].tolist():
            if i not in taken and own[j] == NO_POINT:
                own[j] = i
                taken.add(i)
                ids[0][i] = i
    return ids


def detect_dog(gray: Gray, max_keypoints: int) -> Float64:
    """Detect the strongest keypoints: frames (N, 4)."""
    return DoG(max_keypoints, contrastThreshold=CONTRAST).detect_frames(gray).frames


def warp_scene(
    gray: Gray, n_views: int = 4, seed: int = 0, *, name: str = "photo", max_keypoints: int = 2000
) -> Scene:
    """Make a scene of a photograph (H, W) and n_views - 1 random warps, linked by homographies."""
    rng = np.random.default_rng(seed)
    images, H_1tok = random_warps(gray, n_views, rng)
    frames = [detect_dog(image, max_keypoints) for image in images]
    views = []
    for image, seen, ids in zip(images, frames, link_to_first(frames, H_1tok), strict=True):
        linked = ids != NO_POINT
        views.append(View(image, seen[linked], ids[linked]))
    return Scene(name, tuple(views))


def random_warps(gray: Gray, n_views: int, rng: np.random.Generator) -> tuple[list[Gray], Float64]:
    """Return a photograph and n_views - 1 random warps; the homographies (n_views, 3, 3) to each.

    A warp is a random homography with random gain, gamma, blur and noise.
    """
    as_int(n_views, "n_views", 2)
    if gray.ndim != 2 or gray.dtype != np.uint8:
        raise ValueError(f"photo must be gray uint8 (H, W), got {gray.dtype} {gray.shape}")
    H_1tok = [np.eye(3), *(random_homography(gray.shape, rng) for _ in range(n_views - 1))]
    images = [gray, *(relight(warp(gray, H), rng) for H in H_1tok[1:])]
    return images, np.stack(H_1tok)


def random_homography(shape: tuple[int, ...], rng: np.random.Generator) -> Float64:
    """Turn by up to 45 degrees, zoom by up to 1.6, tilt and shift about the centre."""
    height, width = shape[:2]
    turn, direction = rng.uniform(-np.pi / 4, np.pi / 4), rng.uniform(0, np.pi)
    zoom, stretch = 1.6 ** rng.uniform(-1, 1), 1.3 ** rng.uniform(-1, 1)
    rotation, spin = (
        np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for angle in (turn, direction)
    )
    H = np.eye(3)
    H[:2, :2] = zoom * rotation @ spin @ np.diag([stretch, 1 / stretch]) @ spin.T
    H[:2, 2] = rng.uniform(-0.1, 0.1, 2) * (width, height)
    H[2, :2] = rng.uniform(-0.3, 0.3, 2) / max(width, height)
    centre = np.array([[1, 0, (width - 1) / 2], [0, 1, (height - 1) / 2], [0, 0, 1]])
    return centre @ H @ np.linalg.inv(centre)


def warp(gray: Gray, H: Float64) -> Gray:
    """Warp an image (H, W) by a homography, at the same size."""
    height, width = gray.shape
    centre = np.array([[(width - 1) / 2, (height - 1) / 2]])
    zoom = float(np.sqrt(np.abs(np.linalg.det(homography_map(H)(centre)[1][0]))))
    if zoom < 1:  # smooth before shrinking, or the warp aliases
        gray = np.asarray(cv2.GaussianBlur(gray, (0, 0), 0.5 * np.sqrt(1 / zoom**2 - 1) + 0.01))
    # Mirrored borders make no false edge along the old frame of the picture.
    warped = cv2.warpPerspective(
        gray, H, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101
    )
    return np.asarray(warped, dtype=np.uint8)


def relight(gray: Gray, rng: np.random.Generator) -> Gray:
    """Add random blur, gamma, gain and noise."""
    image = cv2.GaussianBlur(gray, (0, 0), rng.uniform(0.05, 1.2)).astype(np.float64) / 255
    image = rng.uniform(0.7, 1.3) * image ** (1.5 ** rng.uniform(-1, 1))
    image += rng.normal(0, rng.uniform(0, 0.02), image.shape)
    return np.clip(np.rint(255 * image), 0, 255).astype(np.uint8)
