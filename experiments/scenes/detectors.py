"""Keypoints of several detectors, as frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.fit.warps import detect_dog
from kd_cv.keypoints import from_keypoints

Array = NDArray[np.float64]
Detector = Literal["dog", "sift", "hessian", "harris"]


def detect_frames(
    gray: NDArray[np.uint8],
    detectors: Sequence[Detector] = ("dog",),
    max_keypoints: int = 4000,
) -> Array:
    """Keypoints of one or more detectors as frames (N, 4), the strongest max_keypoints of each.

    "dog" is `DoG`, "sift" is cv2.SIFT; "hessian" (maxima of the determinant in space and scale) and
    "harris" (Harris-Laplace) are blobs and corners with one dominant orientation.
    """
    if not detectors or not set(detectors) <= set(get_args(Detector)):
        raise ValueError(
            f"detectors must be some of dog, sift, hessian, harris, got {list(detectors)}"
        )
    frames = [np.empty((0, 4))]
    for kind in detectors:
        if kind == "dog":
            frames.append(detect_dog(gray, max_keypoints))
        elif kind == "sift":
            keypoints = cv2.SIFT.create(nfeatures=max_keypoints).detect(gray, None)
            frames.append(from_keypoints(keypoints))
        else:
            frames.append(_scale_space_maxima(gray, kind, max_keypoints))
    return np.concatenate(frames)


def _scale_space_maxima(gray: NDArray[np.uint8], kind: str, max_keypoints: int) -> Array:
    """Hessian or Harris-Laplace keypoints at scales 2 to 16 pixels."""
    sigmas = 2.0 * 2.0 ** (np.arange(10) / 3)
    image = gray.astype(np.float32) / 255
    strength, selector = [], []
    for sigma in sigmas:
        L = cv2.GaussianBlur(image, (0, 0), sigma)
        Lxx = sigma**2 * cv2.Sobel(L, cv2.CV_32F, 2, 0, scale=0.25)
        Lyy = sigma**2 * cv2.Sobel(L, cv2.CV_32F, 0, 2, scale=0.25)
        if kind == "hessian":
            Lxy = sigma**2 * cv2.Sobel(L, cv2.CV_32F, 1, 1, scale=0.25)
            response = Lxx * Lyy - Lxy**2
            selector.append(response)
        else:
            # Differentiation at 0.7 of the integration scale, as usual for Harris-Laplace.
            D = cv2.GaussianBlur(image, (0, 0), 0.7 * sigma)
            Lx = 0.7 * sigma * cv2.Sobel(D, cv2.CV_32F, 1, 0, scale=0.125)
            Ly = 0.7 * sigma * cv2.Sobel(D, cv2.CV_32F, 0, 1, scale=0.125)
            A, B, C = (cv2.GaussianBlur(m, (0, 0), sigma) for m in (Lx * Lx, Lx * Ly, Ly * Ly))
            response = A * C - B * B - 0.04 * (A + C) ** 2
            selector.append(np.abs(Lxx + Lyy))
        strength.append(response)
    rows = []
    for level in range(1, len(sigmas) - 1):
        response, chosen = strength[level], selector[level]
        peak = (response > 0) & (response >= cv2.dilate(response, np.ones((3, 3), np.uint8)))
        peak &= (chosen > selector[level - 1]) & (chosen > selector[level + 1])
        y, x = np.nonzero(peak)
        size = np.full(len(x), 2 * sigmas[level])
        rows.append(np.stack([x, y, size, response[y, x]], axis=1))
    frames = np.concatenate(rows).astype(np.float64)
    frames = frames[np.argsort(-frames[:, 3], kind="stable")[:max_keypoints]]
    frames[:, 3] = _dominant_orientation(gray, frames)
    return frames


def _dominant_orientation(gray: NDArray[np.uint8], frames: Array) -> Array:
    """Lowe's orientation, degrees (N,): peak of 36 bins of gradient angles, Gaussian 1.5 sigma."""
    angles = np.zeros(len(frames))
    step = np.linspace(-4.5, 4.5, 19)  # three deviations of 1.5 sigma, in sigmas
    dx, dy = np.meshgrid(step, step)
    weight = np.exp(-(dx**2 + dy**2) / (2 * 1.5**2)).ravel()
    for sigma in np.unique(frames[:, 2]) / 2:
        rows = np.flatnonzero(frames[:, 2] == 2 * sigma)
        L = cv2.GaussianBlur(gray.astype(np.float32), (0, 0), sigma)
        x = (frames[rows, 0, None] + dx.ravel() * sigma).astype(np.float32)
        y = (frames[rows, 1, None] + dy.ravel() * sigma).astype(np.float32)
        slopes = (cv2.Sobel(L, cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
        repeated = cv2.BORDER_REPLICATE
        gx, gy = (cv2.remap(g, x, y, cv2.INTER_LINEAR, borderMode=repeated) for g in slopes)
        bins = (np.degrees(np.arctan2(gy, gx)) % 360 / 10).astype(np.int64) % 36
        votes = np.zeros((len(rows), 36))
        np.add.at(votes, (np.arange(len(rows))[:, None], bins), np.hypot(gx, gy) * weight)
        smooth = (np.roll(votes, 1, axis=1) + votes + np.roll(votes, -1, axis=1)) / 3
        best = smooth.argmax(axis=1)
        left, mid, right = (smooth[np.arange(len(rows)), (best + o) % 36] for o in (-1, 0, 1))
        bend = left - 2 * mid + right
        offset = np.where(bend < 0, (left - right) / (2 * np.where(bend < 0, bend, 1)), 0.0)
        angles[rows] = (best + 0.5 + offset) % 36 * 10
    return angles
