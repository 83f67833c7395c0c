"""The result of `match`, for success and failure."""

from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import PathLike, replacing
from kd_cv.matching.geometry import epipolar_errors, reprojection_errors
from kd_cv.matching.neighbours import RATIO, Matches, no_matches
from kd_cv.matching.two_view import WORDS, Model
from kd_cv.types import Array32, Image, KeyPoints


@dataclass(frozen=True)
class MatchResult:
    """Matches of image 0 and image 1, and the model of the inliers.

    matches  (M, 2) indices into keypoints0 and keypoints1
    ratios   (M,) distance of the nearest neighbour over that of the nearest at another place:
             small is certain
    inliers  (M,) bool, matches within the threshold of the model
    H_0to1   (3, 3) homography from image 0 to image 1, or None
    success  True if there are enough inliers to trust the model
    candidates  (K, 2) and (K,): matches and ratios before the ratio test
    model    "homography" (one plane), "fundamental" (a scene) or "essential" (a scene seen by
             known cameras): the model chosen, with "auto"
    F_0to1   (3, 3) of unit norm, of a scene: x1^T F x0 = 0
    E_0to1   (3, 3) of "essential": K1^T F K0
    R_0to1, t_0to1  (3, 3) and (3,) of unit length, of "essential": X1 = R X0 + t
    failure  reason of a failure, in one sentence; empty on success
    images   the two images, as they were matched and drawn
    views    number of synthetic views of each image that were searched
    ratio    the largest ratio accepted
    """

    keypoints0: KeyPoints
    keypoints1: KeyPoints
    matches: NDArray[np.int64]
    ratios: Array32
    inliers: NDArray[np.bool_]
    H_0to1: NDArray[np.float64] | None
    success: bool
    candidates: Matches = field(default_factory=no_matches)
    model: Model = "homography"
    F_0to1: NDArray[np.float64] | None = None
    E_0to1: NDArray[np.float64] | None = None
    R_0to1: NDArray[np.float64] | None = None
    t_0to1: NDArray[np.float64] | None = None
    failure: str = ""
    images: tuple[Image | None, Image | None] = field(default=(None, None), compare=False)
    views: int = 1
    ratio: float = RATIO

    def __repr__(self) -> str:
        return (
            f"MatchResult({len(self.keypoints0)} and {len(self.keypoints1)} keypoints, "
            f"{len(self.matches)} matches, {int(self.inliers.sum())} inliers "
            f"{WORDS[self.model][0]}, success={bool(self.success)})"
        )

    @property
    def points0(self) -> NDArray[np.float64]:
        """Positions (M, 2) of the matches in image 0."""
        return positions(self.keypoints0)[self.matches[:, 0]]

    @property
    def points1(self) -> NDArray[np.float64]:
        """Positions (M, 2) of the matches in image 1."""
        return positions(self.keypoints1)[self.matches[:, 1]]

    @property
    def matrix(self) -> NDArray[np.float64] | None:
        """H_0to1, F_0to1 or E_0to1 of the model."""
        return {
            "homography": self.H_0to1, "fundamental": self.F_0to1, "essential": self.E_0to1
        }[self.model]  # fmt: skip

    def errors(
        self, points0: NDArray[np.float64], points1: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return distances (N,) in pixels of other matches (N, 2) and (N, 2) from the model."""
        if self.matrix is None:
            return np.full(len(points0), np.inf)
        if self.H_0to1 is not None:
            return reprojection_errors(points0, points1, self.H_0to1)
        return epipolar_errors(points0, points1, self.F_0to1)  # type: ignore[arg-type]

    def save(self, path: PathLike) -> None:
        """Write points0, points1, ratios and inliers: .npz, or .txt with one match a line."""
        p0, p1, ratios, inliers = self.points0, self.points1, self.ratios, self.inliers
        with replacing(path) as temporary, open(temporary, "wb") as file:
            if Path(path).suffix == ".npz":
                np.savez(file, points0=p0, points1=p1, ratios=ratios, inliers=inliers)
            else:
                table = np.column_stack([p0, p1, ratios, inliers])
                header = "x0 y0 x1 y1 ratio inlier"
                np.savetxt(file, table, "%.9g %.9g %.9g %.9g %.6g %d", header=header)

    def draw(self, path: PathLike | None = None) -> NDArray[np.uint8]:
        """Draw the matches (H, W, 3) BGR, and write the picture if a path is given."""
        from kd_cv.viz.matches import draw_result  # which needs Matplotlib

        return draw_result(self, path, WORDS[self.model] if self.success else ("", ""))

    def dmatches(self) -> list[cv2.DMatch]:
        """Return matches for cv2.drawMatches; distances are ratios."""
        pairs = zip(self.matches.tolist(), self.ratios.tolist(), strict=True)
        return [cv2.DMatch(i, j, ratio) for (i, j), ratio in pairs]


def named_failure(result: MatchResult, names: tuple[str, str]) -> str:
    """Return `failure` with the names of the photographs."""
    for k, name in enumerate(names):
        if result.failure.startswith(f"image {k} "):
            return name + result.failure.removeprefix(f"image {k}")
    return result.failure


def positions(keypoints: KeyPoints) -> NDArray[np.float64]:
    if not keypoints:
        return np.zeros((0, 2))
    return cv2.KeyPoint.convert(keypoints).astype(np.float64)
