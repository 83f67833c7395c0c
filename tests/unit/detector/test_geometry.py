"""Keypoints follow the image: shifted, turned, scaled, darkened, mirrored."""

import cv2
import numpy as np
import pytest

from experiments.benchmarks.geometry import followed
from kd_cv import DoG


def frames_of(gray, count=600):
    return DoG(count).detect_frames(gray).frames


def inner(frames, shape, margin):
    x, y = frames[:, 0], frames[:, 1]
    return frames[(x > margin) & (y > margin) & (x < shape[1] - margin) & (y < shape[0] - margin)]


@pytest.fixture(scope="module")
def large(photographs):
    """A photograph at twice its size, free of aliasing at half of it."""
    return cv2.GaussianBlur(np.float32(photographs["astronaut"]), (0, 0), 1.0)


@pytest.mark.parametrize("dx, dy", [(1, 0), (0, 1), (1, 1), (3, 1)])
def test_keypoints_follow_a_shift_of_half_pixels_to_a_tenth_of_one(large, dx, dy):
    still, moved = (
        large[:-4:2, :-4:2],
        large[dy:, dx:][: -4 + dy or None : 2, : -4 + dx or None : 2],
    )
    moved = moved[: still.shape[0], : still.shape[1]]
    again, error, scale, angle = followed(
        inner(frames_of(still), still.shape, 8), frames_of(moved, 1000), np.eye(2),
        [-dx / 2, -dy / 2],
    )  # fmt: skip
    assert again > 0.7
    assert error < 0.065
    assert scale < 0.03
    assert angle < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [10, 45, 90, 133, 180, 251])
def test_keypoints_turn_with_the_image(photographs, degrees):
    gray = photographs["brick"][:449, :449]  # octaves begin alike from all sides
    centre = (np.array(gray.shape[::-1]) - 1) / 2
    M = cv2.getRotationMatrix2D(tuple(centre), -degrees, 1.0)
    turned = cv2.warpAffine(gray, M, gray.shape[::-1], flags=cv2.INTER_LANCZOS4)
    first = frames_of(gray)
    first = first[np.linalg.norm(first[:, :2] - centre, axis=1) < 200]
    again, error, scale, angle = followed(first, frames_of(turned, 1500), M[:, :2], M[:, 2])
    assert again > (0.98 if degrees % 90 == 0 else 0.7)
    assert error < 0.1
    assert scale < 0.05
    assert angle < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 0.7, 1.4, 2.0])
def test_keypoints_scale_with_the_image(photographs, factor):
    gray = photographs["astronaut"]
    size = round(gray.shape[1] * factor), round(gray.shape[0] * factor)
    way = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    scaled = cv2.resize(gray, size, interpolation=way)
    A = np.diag([size[0] / gray.shape[1], size[1] / gray.shape[0]])
    first = frames_of(gray)
    first = first[first[:, 2] * factor > 2.6]  # large enough for the smaller image
    again, error, scale, angle = followed(first, frames_of(scaled, 3000), A, (np.diag(A) - 1) / 2)
    assert again > 0.6
    assert error < 0.25
    assert scale < 0.1
    assert angle < 3.0


def test_keypoints_stay_when_the_image_is_darkened_to_a_fifth(photographs):
    for name in ("camera", "coffee", "chelsea"):
        gray = photographs[name]
        dark = np.uint8(np.rint(gray * 0.2))
        again, error, scale, angle = followed(
            frames_of(gray, 500), frames_of(dark, 700), np.eye(2), 0
        )
        assert again > 0.8
        assert error < 0.065
        assert scale < 0.02
        assert angle < 1.5


def test_a_gain_changes_nothing(camera):
    image = np.float32(camera)
    first, second = frames_of(image), frames_of(image * np.float32(0.0173))
    again, error, scale, angle = followed(first, second, np.eye(2), 0)
    assert again > 0.99 and error < 1e-3 and scale < 1e-3 and angle < 0.1


def test_keypoints_are_mirrored_with_the_image(camera):
    camera = camera[:, :449]  # every octave begins at the same pixels from both sides
    mirrored = camera[:, ::-1]
    again, error, scale, angle = followed(
        frames_of(camera), frames_of(mirrored), np.diag([-1.0, 1.0]), [camera.shape[1] - 1, 0]
    )
    assert again > 0.98
    assert error < 1e-2
    assert scale < 1e-2
    assert angle < 0.5
