"""Scenes of one photograph and random warps of it."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int
from kd_cv.detector.settings import CONTRAST
from kd_cv.fit.links import Array, homography_map, link_to_first
from kd_cv.fit.scenes import NO_POINT, Scene, View
from kd_cv.keypoints import from_keypoints
from kd_cv.opencv.dog import DoG

Gray = NDArray[np.uint8]


def detect_dog(gray: Gray, max_keypoints: int) -> Array:
    """Frames (N, 4) of the strongest keypoints of our detector, none of them weak."""
    detector = DoG(max_keypoints, contrastThreshold=CONTRAST)
    return from_keypoints(detector.detect(gray, None))


def warp_scene(
    gray: Gray, n_views: int = 4, seed: int = 0, *, name: str = "photo", max_keypoints: int = 2000
) -> Scene:
    """A scene made of one photograph (H, W): itself and n_views - 1 random warps of it.

    A warp is a random homography (turn, zoom, shift, tilt) with random gain, gamma, blur and noise.
    Keypoints are detected in every view; those of the photograph are linked with those of each warp
    by its homography.
    """
    as_int(max_keypoints, "max_keypoints")
    rng = np.random.default_rng(seed)
    images, H_1tok = random_warps(gray, n_views, rng)
    frames = [detect_dog(image, max_keypoints) for image in images]
    views = []
    for image, seen, ids in zip(images, frames, link_to_first(frames, H_1tok), strict=True):
        linked = ids != NO_POINT
        views.append(View(image, seen[linked], ids[linked]))
    return Scene(name, tuple(views))


def random_warps(gray: Gray, n_views: int, rng: np.random.Generator) -> tuple[list[Gray], Array]:
    """A photograph and n_views - 1 random warps of it; the homographies (n_views, 3, 3) to each."""
    as_int(n_views, "n_views", 2)
    if gray.ndim != 2 or gray.dtype != np.uint8:
        raise ValueError(f"photo must be gray uint8 (H, W), got {gray.dtype} {gray.shape}")
    H_1tok = [np.eye(3), *(random_homography(gray.shape, rng) for _ in range(n_views - 1))]
    images = [gray, *(relight(warp(gray, H), rng) for H in H_1tok[1:])]
    return images, np.stack(H_1tok)


def random_homography(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """About the centre: a turn up to 45 degrees, a zoom up to 1.6, a tilt and a shift."""
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


def warp(gray: Gray, H: Array) -> Gray:
    """The image (H, W) seen through a homography, of the same size."""
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
    """Random blur, gamma, gain and noise."""
    image = cv2.GaussianBlur(gray, (0, 0), rng.uniform(0.05, 1.2)).astype(np.float64) / 255
    image = rng.uniform(0.7, 1.3) * image ** (1.5 ** rng.uniform(-1, 1))
    image += rng.normal(0, rng.uniform(0, 0.02), image.shape)
    return np.clip(np.rint(255 * image), 0, 255).astype(np.uint8)
