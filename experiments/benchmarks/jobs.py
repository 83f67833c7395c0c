"""Calls of all kinds, each of which must always give the same bits."""

import hashlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
import skimage.data

from kd_cv import DoG, KDDescriptor, MatchResult, describe, match
from kd_cv.keypoints import from_keypoints
from kd_cv.types import KeyPoints

Job = Callable[[], bytes]


def make_jobs() -> dict[str, Job]:
    """Name -> a call that gives a digest of all it returned."""
    photo = np.ascontiguousarray(skimage.data.astronaut()[:, :, ::-1])
    gray = cv2.cvtColor(photo, cv2.COLOR_BGR2GRAY)
    images = {
        "small": cv2.resize(gray, (160, 120)),
        "bgr": cv2.resize(photo, (640, 480)),
        "float": gray.astype(np.float32) / 255,
        "uint16": gray.astype(np.uint16) * 257,
        "large": cv2.resize(gray, (2000, 1500)),
        "row": np.ascontiguousarray(gray[200:201]),
        "strided": cv2.resize(gray, (900, 700))[::2, ::3],
    }
    descriptors = {
        "default": KDDescriptor(),
        "scales": KDDescriptor(scales=3, drop=True),
        "bytes": KDDescriptor(descriptor_type=cv2.CV_8U, upright=True),
        "raw": KDDescriptor(patch_size=64, whitening=None),
    }
    jobs: dict[str, Job] = {}
    for name, image in images.items():
        keypoints = _keypoints(image)
        mask = np.zeros(image.shape[:2], np.uint8)
        mask[:, : image.shape[1] // 2] = 255
        for kind, kd in descriptors.items():
            jobs[f"compute {name} {kind}"] = partial(computed, kd, image, keypoints)
        jobs[f"detect {name}"] = partial(_detected, DoG(), image)
        jobs[f"detect {name} masked"] = partial(_detected, DoG(100), image, mask)
        jobs[f"detectAndCompute {name}"] = partial(detected_and_computed, KDDescriptor(500), image)
    patches = np.stack([gray[y : y + 32, x : x + 32] for y in range(0, 480, 24) for x in (9, 200)])
    larger = np.stack([cv2.resize(patch, (64, 64)) for patch in patches]).astype(np.float32)
    jobs["describe 32"] = lambda: digest(describe(patches))
    jobs["describe 64"] = lambda: digest(describe(larger, whitening="wua", dim=64))
    jobs["describe none"] = lambda: digest(describe(patches[:0]))
    turned = cv2.warpAffine(gray, cv2.getRotationMatrix2D((256, 256), 20, 0.9), (512, 512))
    for kind in ("kd", "rootsift"):
        jobs[f"match {kind}"] = partial(_matched, gray, turned, kind)
    jobs["match different sizes"] = partial(_matched, images["bgr"], images["small"])
    left, right = (image[:, :600] for image in skimage.data.stereo_motorcycle()[:2])
    for model in ("fundamental", "essential", "auto"):
        jobs[f"match {model}"] = partial(_matched, left, right, model=model, camera0=1000.0)
    return jobs


def check(jobs: dict[str, Job], first: dict[str, bytes], rng: random.Random) -> str | None:
    """Call a job of the rng's choice; its name if the result is not the first one."""
    name = rng.choice(list(jobs))
    return None if jobs[name]() == first[name] else name


def computed(kd: KDDescriptor, image: Any, keypoints: KeyPoints) -> bytes:
    return _digest_of(*kd.compute(image, keypoints))


def detected_and_computed(kd: KDDescriptor, image: Any) -> bytes:
    return _digest_of(*kd.detectAndCompute(image, None))


def _detected(detector: DoG, image: Any, mask: Any = None) -> bytes:
    return _digest_of(detector.detect(image, mask), None)


def _matched(image0: Any, image1: Any, kind: str = "kd", **options: Any) -> bytes:
    found: MatchResult = match(image0, image1, kind, max_keypoints=600, **options)
    places = (from_keypoints(keypoints) for keypoints in (found.keypoints0, found.keypoints1))
    poses = found.R_0to1, found.t_0to1
    return digest(*places, found.matches, found.ratios, found.inliers, found.matrix, *poses)


def _digest_of(keypoints: KeyPoints, rows: Any) -> bytes:
    responses = np.array([keypoint.response for keypoint in keypoints])
    return digest(from_keypoints(keypoints), responses, rows)


def digest(*arrays: Any) -> bytes:
    total = hashlib.sha256()
    for array in arrays:
        if array is not None:
            array = np.ascontiguousarray(array)
            total.update(f"{array.dtype} {array.shape}".encode())
            total.update(array.reshape(-1).view(np.uint8).data)
    return total.digest()


def _keypoints(image: Any) -> KeyPoints:
    height, width = image.shape[:2]
    rng = np.random.default_rng(0)
    count = 20 if height == 1 else 3000 if width == 2000 else 300
    x, y = rng.uniform(0, width, count), rng.uniform(0, height, count)
    size, angle = rng.uniform(1, 20, count), rng.uniform(0, 360, count)
    odd = [cv2.KeyPoint(-100, 5, 3), cv2.KeyPoint(5, 5, float("nan")), cv2.KeyPoint(3, 0, 0)]
    random = [cv2.KeyPoint(*row) for row in np.stack([x, y, size, angle], axis=1).tolist()]
    return (*random, *odd)
