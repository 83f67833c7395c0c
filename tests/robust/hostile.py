"""Hostile calls: each must end in a result or in a clear error, never in a crash or a hang.

    python tests/robust/hostile.py            all groups, each in its own process
    python tests/robust/hostile.py images     some of them
    python tests/robust/hostile.py --large    huge images, a million keypoints, and their memory

Each call says what it expects: an exception of a type and with words, or a test of the result. A
group runs in a child process under faulthandler; if it dies or hangs, the call is named and the
group goes on after it. The exit code is 0 only if every call behaved.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import multiprocessing
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from kd_cv import KDDescriptor, Whitening, describe, match
from kd_cv.descriptor.engine import describe_frames
from kd_cv.descriptor.frames import as_frames, to_keypoints
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.descriptor.spec import Spec
from kd_cv.matching import match_descriptors

HANG = 60  # seconds that a call may take


@dataclass(frozen=True)
class Raises:
    """An error of one of these types whose text has these words."""

    types: tuple[type[BaseException], ...]
    words: str


def raises(*types: type[BaseException], words: str = "") -> Raises:
    return Raises(types, words)


Call = tuple[str, Callable[[], Any], Callable[[Any], bool] | Raises]
Calls = Iterator[Call]

rng = np.random.default_rng(0)
IMAGE = cv2.GaussianBlur(rng.integers(0, 256, (60, 80)).astype(np.uint8), (0, 0), 1.0)
POINTS = [cv2.KeyPoint(20.0, 20.0, 3.0, 0.0), cv2.KeyPoint(40.0, 30.0, 2.0, 90.0)]
NO_IMAGE = raises(TypeError, ValueError, words="an? .*image must")


def has_rows(count: int = 2, zero: bool | None = None) -> Callable[[Any], bool]:
    """(keypoints, rows): `count` finite rows of norm 1 or 0; all 0, none, or as it comes."""

    def test(result: Any) -> bool:
        kept, rows = result
        rows = rows.get() if isinstance(rows, cv2.UMat) else rows
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        good = len(kept) == count and rows.shape == (count, 128) and rows.dtype == np.float32
        good &= bool(np.all((norms == 0) | (np.abs(norms - 1) < 1e-4)))
        return good and (zero is None or bool(np.all((norms == 0) == zero)))

    return test


def is_none(count: int = 2) -> Callable[[Any], bool]:
    """(keypoints, None)."""
    return lambda result: len(result[0]) == count and result[1] is None


# Groups of calls ----------------------------------------------------------------------------------


def images() -> Calls:
    kd = KDDescriptor()
    real = {
        "float16": IMAGE.astype(np.float16),
        "long double": IMAGE.astype(np.longdouble),
        "big-endian 16 bits": IMAGE.astype(">u2"),
        "big-endian float": IMAGE.astype(">f8"),
        "negative values": -IMAGE.astype(np.float32),
        "values to 3e38": IMAGE.astype(np.float32) / 256 * np.float32(3e38),
        "masked": np.ma.masked_greater(IMAGE, 100),
        "subclass": IMAGE.view(type("Sub", (np.ndarray,), {})),
        "record array": IMAGE.view(np.recarray),
        "read-only": np.frombuffer(IMAGE.tobytes(), np.uint8).reshape(IMAGE.shape),
        "negative strides": IMAGE[::-1, ::-1],
        "transposed": IMAGE.T,
        "overlapping strides": np.lib.stride_tricks.as_strided(IMAGE, (50, 60), (1, 1)),
        "stride 0 down": np.broadcast_to(IMAGE[:1], (60, 80)),
        "stride 0 along": np.broadcast_to(IMAGE[:, :1], (60, 80)),
        "one row": IMAGE[:1],
        "one column": IMAGE[:, :1],
        "two pixels": IMAGE[:1, :2],
        "UMat": cv2.UMat(IMAGE),
        "UMat of floats": cv2.UMat(IMAGE.astype(np.float32)),
        "BGRA": np.repeat(IMAGE[:, :, None], 4, axis=2)[::-1, ::-1],
    }
    for name, image in real.items():
        yield f"image: {name}", lambda image=image: kd.compute(image, POINTS), has_rows()
    far_apart = np.lib.stride_tricks.as_strided(np.zeros(4_000_000, np.uint8), (40, 40), (10**5, 1))
    flat = {
        "1 x 1": np.zeros((1, 1), np.uint8),
        "stride 0 both ways": np.broadcast_to(np.uint8(9), (60, 80)),
        "rows 100,000 bytes apart": far_apart,
        "subnormal": IMAGE.astype(np.float32) * np.float32(1e-44),
        "offset of 1e8": IMAGE.astype(np.float32) + np.float32(1e8),
        "1e36": np.full((60, 80), 1e36, np.float32),
        "3e38": np.full((60, 80), 3e38, np.float32),
    }
    for name, image in flat.items():
        yield f"image: {name}", lambda image=image: kd.compute(image, POINTS), has_rows(zero=True)
    empty = {
        "None": None,
        "0 x 0": np.zeros((0, 0), np.uint8),
        "0 x 5": np.zeros((0, 5)),
        "5 x 0": np.zeros((5, 0), np.uint8),
        "0 x 5 x 3": np.zeros((0, 5, 3), np.uint8),
        "empty UMat": cv2.UMat(),
    }
    for name, image in empty.items():
        yield f"image: {name}", lambda image=image: kd.compute(image, POINTS), is_none()
        yield f"detect: {name}", lambda image=image: kd.detect(image), lambda found: found == ()
    wrong = {
        "0-D": np.array(3, np.uint8),
        "1-D": np.zeros(5, np.uint8),
        "5-D": np.zeros((1, 2, 3, 4, 5), np.uint8),
        "2 channels": np.zeros((9, 9, 2), np.uint8),
        "no channels": np.zeros((9, 9, 0), np.uint8),
        "objects": np.full((9, 9), None),
        "strings": np.array([["a"]]),
        "structured": np.zeros((9, 9), [("a", "u1")]),
        "complex": np.zeros((9, 9), complex),
        "dates": np.zeros((9, 9), "M8[s]"),
        "void": np.zeros((9, 9), "V1"),
        "bool": np.zeros((9, 9), bool),
        "int8": np.zeros((9, 9), np.int8),
        "int64": np.zeros((9, 9), np.int64),
        "NaN": np.full((9, 9), np.nan),
        "one infinity": np.where(np.eye(9) > 0, np.inf, 0.0),
        "NaN under a mask": np.ma.masked_invalid(np.full((9, 9), np.nan)),
        "1e300": np.full((9, 9), 1e300),
        "2^24 + 1 wide": np.broadcast_to(np.uint8(0), (2, 2**24 + 1)),
        "a path": "photo.png",
        "bytes": b"photo",
        "a dict": {},
        "a number": 3.5,
        "itself": kd,
    }
    for name, image in wrong.items():
        yield f"image: {name}", lambda image=image: kd.compute(image, POINTS), NO_IMAGE
        yield f"detect: {name}", lambda image=image: kd.detect(image), NO_IMAGE

    def mapped() -> Any:
        with tempfile.NamedTemporaryFile() as file:
            file.write(IMAGE.tobytes())
            file.flush()
            return kd.compute(np.memmap(file.name, np.uint8, "r", shape=IMAGE.shape), POINTS)

    yield "image: memory-mapped, then deleted", mapped, has_rows(zero=False)
    masks = {
        "float": np.ones((60, 80)),
        "bool": np.ones((60, 80), bool),
        "another size": np.ones((6, 8), np.uint8),
        "empty": np.zeros((0, 0), np.uint8),
        "3 channels": np.ones((60, 80, 3), np.uint8),
        "a path": "mask.png",
        "a list": [IMAGE],
    }
    refused = raises(TypeError, ValueError, words="a mask must")
    for name, mask in masks.items():
        yield f"mask: {name}", lambda mask=mask: kd.detect(IMAGE, mask), refused


def keypoints() -> Calls:
    kd = KDDescriptor()
    nan, inf, huge = np.nan, np.inf, 3.4e38
    hopeless = {
        "all NaN": (nan, nan, nan, nan), "x NaN": (nan, 9, 3, 0), "x inf": (inf, 9, 3, 0),
        "y -inf": (9, -inf, 3, 0), "size NaN": (9, 9, nan, 0), "size inf": (9, 9, inf, 0),
        "size 0": (9, 9, 0, 0), "size -0": (9, 9, -0.0, 0), "size < 0": (9, 9, -3, 0),
        "size subnormal": (9, 9, 1e-45, 0), "size largest": (9, 9, huge, 0),
        "all largest": (huge, huge, huge, huge), "angle NaN": (9, 9, 3, nan),
        "angle inf": (9, 9, 3, inf), "far away": (huge, 9, 3, 0), "just outside": (200, 9, 3, 0),
        "size 2^24": (9, 9, 2.0**24, 0),
    }  # fmt: skip
    for name, row in hopeless.items():
        point = cv2.KeyPoint(*map(float, row))
        for image, where in ((IMAGE, ""), (IMAGE[:1], ", one row"), (IMAGE[:, :1], ", one column")):
            yield (
                f"keypoint: {name}{where}",
                lambda image=image, point=point: kd.compute(image, [point]),
                has_rows(1, zero=True),
            )
    described = {
        "angle 1e38": (9, 9, 3, 1e38), "angle -7200": (9, 9, 3, -7200), "corner": (0, 0, 3, 45),
        "outside, but its patch is not": (-9, -9, 3, 0), "larger than the image": (9, 9, 99, 10),
        "1e4": (9, 9, 1e4, 10),
    }  # fmt: skip
    for name, row in described.items():
        point = cv2.KeyPoint(*map(float, row))
        yield f"keypoint: {name}", lambda point=point: kd.compute(IMAGE, [point]), has_rows(1)
    for octave in (-(2**31), -1, 255, 2**31 - 1):
        point = cv2.KeyPoint(20.0, 20.0, 3.0, 0.0, np.nan, octave, -(2**31))
        name = f"keypoint: octave {octave}, response NaN"
        yield name, lambda point=point: kd.compute(IMAGE, [point]), has_rows(1, zero=False)
    frames = [[1e300, 1, 1, 0], [1, 1, 1e300, 0], [1, 1, 5e-324, 0], [9, 9, 3, 1e300]]

    def by_frames() -> Any:
        rows = describe_frames(IMAGE, np.array(frames, float), Spec(), magnification=12.0)
        return bool(np.isfinite(rows).all() and not rows[:3].any() and rows[3].any())

    yield "frames: double floats", by_frames, bool
    yield "frames: patches of no size", lambda: extract_patches(
        IMAGE, [[9, 9, 0, 0]], 32
    ).any(), lambda any_: not any_  # fmt: skip

    class Broken:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            raise RuntimeError("broken")

    class Endless(list[Any]):
        def __len__(self) -> int:
            return 2**40

    wrong = {
        "a generator": (point for point in POINTS), "a set": set(POINTS), "a dict": {}, "3": 3,
        "a string": "ab", "numbers": [1, 2], "None inside": [None], "a list inside": [POINTS],
        "an array of frames": np.zeros((3, 4)), "one keypoint": POINTS[0],
        "matches": [cv2.DMatch()], "raising": Broken(), "2^40 of them": Endless(POINTS),
        "classes": [cv2.KeyPoint],
    }  # fmt: skip
    refused = raises(TypeError, words=r"keypoints must be a sequence of cv2\.KeyPoint, got ")
    for name, value in wrong.items():
        yield f"keypoints: {name}", lambda value=value: kd.compute(IMAGE, value), refused
    for name, value in {"[]": [], "()": (), "None": None, "array of none": np.zeros((0,))}.items():
        yield f"keypoints: {name}", lambda value=value: kd.compute(IMAGE, value), is_none(0)
    yield (
        "keypoints: 100,000 times the same",
        lambda: kd.compute(IMAGE, POINTS[:1] * 100_000),
        has_rows(100_000, zero=False),
    )
    shape = raises(ValueError, words=r"frames must have shape \(N, 4\)")
    for value in (np.zeros((3, 5)), np.zeros(4), 3.0, [[]]):
        yield f"frames: {value!r:.20}", lambda value=value: as_frames(value), shape


def arguments() -> Calls:
    """Buffers, lists and detectors."""
    kd = KDDescriptor()
    frozen = np.zeros((2, 128), np.float32)
    frozen.flags.writeable = False
    yield (
        "buffer: read-only",
        lambda: kd.compute(IMAGE, POINTS, frozen),
        raises(ValueError, words="read-only"),
    )
    buffers = {
        "strided": np.zeros((2, 256), np.float32)[:, ::2], "another type": np.zeros((2, 128)),
        "another shape": np.zeros(3, np.float32), "empty": np.zeros((0, 0), np.float32),
        "UMat": cv2.UMat(np.zeros((2, 128), np.float32)), "a string": "rows",
    }  # fmt: skip
    for name, buffer in buffers.items():
        yield (
            f"buffer: {name}",
            lambda buffer=buffer: kd.compute(IMAGE, POINTS, buffer),
            has_rows(zero=False),
        )
    own = rng.random((2, 128)).astype(np.float32)
    yield "buffer: the image itself", lambda: kd.compute(own, POINTS, own), has_rows()
    endless: list[Any] = []
    endless.append(endless)
    for name, value in (("nested", [[IMAGE]]), ("endless", endless), ("of numbers", [[1], [2]])):
        yield f"list: {name}", lambda value=value: kd.detect(value), NO_IMAGE
        yield f"lists: {name}", lambda v=value: kd.compute(v, [POINTS] * len(v)), NO_IMAGE
    lengths = raises(ValueError, words="need as many")
    yield "lists: of different lengths", lambda: kd.compute([IMAGE] * 2, [POINTS]), lengths
    yield "lists: no list of keypoints", lambda: kd.compute([IMAGE], None), lengths
    yield "lists: masks of another length", lambda: kd.detect([IMAGE] * 2, [None] * 3), lengths
    yield "lists: empty", lambda: kd.compute([], []), lambda found: found == ((), ())
    yield "lists: of None", lambda: kd.detect([None, None]), lambda found: found == ((), ())
    one = raises(TypeError, words="takes one image")
    yield "detectAndCompute: None", lambda: kd.detectAndCompute(None, None), one
    yield "detectAndCompute: a list", lambda: kd.detectAndCompute([IMAGE], None), one
    yield "detectAndCompute: provided keypoints", lambda: kd.detectAndCompute(
        IMAGE, None, None, True
    ), raises(ValueError, words="call compute")  # fmt: skip
    yield "compute: nothing at all", lambda: kd.compute(), raises(TypeError, words="missing 2")

    class Detector:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def detect(self, image: Any, mask: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    def detected(answer: Any) -> Callable[[], Any]:
        return lambda: KDDescriptor(detector=Detector(answer)).detectAndCompute(IMAGE, None)

    yield "detector: answers None", detected(None), is_none(0)
    yield "detector: answers numbers", detected([1]), raises(TypeError, words="cv2.KeyPoint")
    yield "detector: raises", detected(KeyError("own")), raises(KeyError, words="own")
    yield "detector: lists hopeless ones", detected([cv2.KeyPoint()] * 2), has_rows(zero=True)
    yield "isinstance, and into C++", lambda: cv2.AffineFeature_create(kd), raises(
        TypeError, cv2.error
    )  # fmt: skip
    yield "a bare object", lambda: KDDescriptor.__new__(KDDescriptor).compute(
        IMAGE, POINTS
    ), raises(AttributeError)  # fmt: skip


def settings() -> Calls:
    a_number = raises(TypeError, ValueError, words="magnification")
    scale = raises(TypeError, ValueError, words="scales must|factor of scales must")
    wrong: dict[str, tuple[list[Any], Raises]] = {
        "magnification": ([None, [1], np.nan, np.inf, 0, -1, 1j, "12", 10**400], a_number),
        "scales": (
            [None, "abc", 2.5, True, 0, -1, (), [np.nan], [0], ["a"], [[1]], 10**9, [1] * 101],
            scale,
        ),
        "patch_size": (
            [True, "32", None, 15, 129, -32, 10**30, 32.0, np.array(32)],
            raises(TypeError, ValueError, words="patch_size must be"),
        ),
        "dim": (
            [True, 0, -1, 1.5, "128", None, 129, 10**30],
            raises(ValueError, words="dim must be"),
        ),
        "kernel": ([None, "", b"concat", ["concat"]], raises(ValueError, words="unknown kernel")),
        "whitening": (["", 3, True, ["ws"], b"ws"], raises(ValueError, words="unknown whitening")),
        "weights": (
            [None, "", ".", "/", b"multiview", 3, ["multiview"], np.zeros((3, 3)), {}, "no.npz",
             "\0.npz", "x" * 5000 + ".npz", "/dev/zero", "/dev/zero.npz", "http://host/w.npz"],
            raises(TypeError, ValueError, OSError, words="weights|entries|too long"),
        ),
        "descriptor_type": (
            [None, "f", np.float32, 1, np.zeros(2)],
            raises(ValueError, words="descriptor_type must"),
        ),
        "detector": ([3, "sift", cv2.SIFT_create], raises(TypeError, words="detector must")),
        "nonsense": ([1], raises(TypeError, words="nonsense")),
    }  # fmt: skip
    for name, (values, expected) in wrong.items():
        for value in values:
            yield (
                f"{name}={value!r:.30}",
                lambda name=name, value=value: KDDescriptor(**{name: value}),
                expected,
            )
    extreme: list[dict[str, Any]] = [
        {"magnification": 1e60}, {"magnification": 1e308, "scales": (10.0,)},
        {"magnification": 5e-324}, {"scales": (1e300,)}, {"scales": (1e-300,)},
        {"scales": (1e-300, 1e300)},
    ]  # fmt: skip
    for given in extreme:
        for image in (IMAGE, IMAGE[:1], IMAGE[:, :1]):
            yield (
                f"{given} on {image.shape}",
                lambda given=given, image=image: KDDescriptor(**given).compute(image, POINTS),
                has_rows(zero=True),
            )
    yield "scales=100", lambda: KDDescriptor(scales=100).compute(IMAGE, POINTS), has_rows(
        zero=False
    )  # fmt: skip


def patches() -> Calls:
    good = rng.random((3, 32, 32))
    shape = raises(ValueError, words=r"patches must have shape|patch_size must be")
    for value in (None, "x", [[1]], np.zeros(3), np.zeros((32, 32)), np.zeros((1, 1, 32, 32)),
                  np.zeros((2, 32, 16)), np.zeros((2, 15, 15)), np.zeros((2, 129, 129)),
                  np.zeros((0, 0, 0))):  # fmt: skip
        name = f"patches: {np.shape(value)} {type(value).__name__}"
        yield name, lambda value=value: describe(value), shape
    kind = raises(TypeError, words="patches must be uint8 or float")
    for dtype in (object, int, bool, complex, np.uint16, "M8[s]"):
        name = f"patches: {np.dtype(dtype)}"
        yield name, lambda dtype=dtype: describe(np.zeros((1, 32, 32), dtype)), kind
    finite = raises(ValueError, words="NaN or infinity")
    for number in (np.nan, np.inf, -np.inf):
        value = good.copy()
        value[1, 5, 5] = number
        yield f"patches: one {number}", lambda value=value: describe(value), finite

    def unit(rows: np.ndarray) -> bool:
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        return bool(np.all((norms == 0) | (np.abs(norms - 1) < 1e-4)))

    views = {
        "1e15": good * 1e15, "1e30": good * 1e30, "3e38": good * 3e38, "1e-30": good * 1e-30,
        "negative": -good,
        "float16": good.astype(np.float16), "big-endian": good.astype(">f4"), "nested lists":
        good.tolist(), "stride 0": np.broadcast_to(good[:1], (9, 32, 32)), "reversed":
        good[::-1, ::-1, ::-1], "none": good[:0], "long double": good.astype(np.longdouble),
    }  # fmt: skip
    for name, value in views.items():
        yield f"patches: {name}", lambda value=value: describe(value), unit
    yield "patches: another size", lambda: describe(good, patch_size=31), raises(
        ValueError, words="patch_size is 31"
    )  # fmt: skip


def matching() -> Calls:
    failed = {
        "empty": np.zeros((0, 0), np.uint8), "1 x 1": np.zeros((1, 1), np.uint8),
        "one row": IMAGE[:1], "one column": IMAGE[:, :1], "flat": np.zeros((60, 80), np.uint8),
    }  # fmt: skip
    for name, image in failed.items():
        yield (
            f"match: {name}",
            lambda image=image: match(image, IMAGE),
            lambda found: (
                found.success is False and found.H_0to1 is None and not len(found.matches)
            ),
        )
    no_image = raises(TypeError, ValueError, words="image")
    for value in (None, "a.png", [IMAGE], np.zeros(3), 3):
        yield f"match: {value!r:.20}", lambda value=value: match(IMAGE, value), no_image
    wrong: dict[str, list[Any]] = {
        "max_keypoints": [0, -1, 1.5, "3", True, np.nan], "ratio": [0, -1, 2, "x", None, np.nan],
        "threshold": [0, -1, "x", None, np.nan, np.inf, [3]], "detector": [3, "sift"],
        "descriptor": [None, 3, "surf", KDDescriptor, np.zeros(2), []],
    }  # fmt: skip
    for name, values in wrong.items():
        expected = raises(TypeError, ValueError, words=name)
        for value in values:
            yield (
                f"match: {name}={value!r:.20}",
                lambda name=name, value=value: match(IMAGE, IMAGE, **{name: value}),
                expected,
            )
    ones = np.ones((3, 4))
    bad = raises(ValueError, words="descriptors must be finite|expected d0")
    for value in (np.full((3, 4), np.nan), np.full((3, 4), None), ones * 1j, np.ones((3, 5)),
                  np.ones(4), "rows", 3):  # fmt: skip
        name = f"match_descriptors: {np.asarray(value).dtype} {np.shape(value)}"
        yield name, lambda value=value: match_descriptors(ones, value), bad
    for name, value in {"None": None, "no rows": ones[:0], "zeros": 0 * ones}.items():
        yield (
            f"match_descriptors: {name}",
            lambda value=value: match_descriptors(ones, value),
            lambda found: found[0].shape == (0, 2) and found[1].shape == (0,),
        )


def files() -> Calls:
    folder = Path(scratch())
    whole = folder / "whole.npz"
    raw = describe(rng.random((600, 32, 32)), whitening=None)
    from kd_cv.whitening.whitening import Statistics

    statistics = Statistics(238)
    statistics.update(raw, np.arange(600).reshape(-1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Whitening.fit(statistics, shrink_index=40).save(whole, "concat", 32)
    data = whole.read_bytes()
    refused = raises(ValueError, OSError, words=".")
    broken = {
        "no bytes": b"", "one byte": data[:1], "a half": data[: len(data) // 2],
        "all but one byte": data[:-1], "zeros": bytes(1000), "text": b"not a matrix",
        "a byte changed": data[:2000] + bytes([data[2000] ^ 255]) + data[2001:],
        "a pickle": pickle.dumps({"mu": 3}),
    }  # fmt: skip
    for name, content in broken.items():
        for suffix in (".npz", ".pth"):
            path = folder / f"{name.replace(' ', '_')}{suffix}"
            path.write_bytes(content)
            yield (
                f"weights: {name}, {suffix}",
                lambda path=path: KDDescriptor(weights=path),
                refused,
            )
    (folder / "folder.npz").mkdir()
    yield "weights: a folder", lambda: KDDescriptor(weights=folder / "folder.npz"), refused
    yield "weights: whole", lambda: KDDescriptor(weights=whole).compute(IMAGE, POINTS), has_rows()
    yield "weights: of another kernel", lambda: KDDescriptor(
        kernel="cart", weights=whole
    ), raises(ValueError, words="no matrices for kernel 'cart'")  # fmt: skip
    KDDescriptor().write(folder / "kd.yml")
    text = (folder / "kd.yml").read_text()
    settings = {
        "empty": "", "cut": text[: len(text) // 2], "binary": "\0\1\2", "another's": "a: 1\n",
        "wrong size": text.replace("patch_size: 32", "patch_size: 10000000"),
        "no size": text.replace("patch_size: 32", ""),
        "a text for a size": text.replace("patch_size: 32", "patch_size: x"),
    }  # fmt: skip
    for name, content in settings.items():
        path = folder / f"{name}.yml"
        path.write_text(content)
        yield f"settings: {name}", lambda path=path: KDDescriptor().read(path), raises(
            ValueError, TypeError, OSError, words="."
        )  # fmt: skip
    for path in ("/nowhere/kd.yml", folder, "", "\0", None, 3):
        yield f"write: {path!r:.20}", lambda path=path: KDDescriptor().write(path), raises(
            OSError, ValueError, TypeError, words="."
        )  # fmt: skip
    for path in ("/nowhere/kd.yml", folder, "", "\0", None, 3):
        yield f"read: {path!r:.20}", lambda path=path: KDDescriptor().read(path), raises(
            OSError, ValueError, TypeError, words="."
        )  # fmt: skip


def command_line() -> Calls:
    from kd_cv.cli import main

    folder = Path(scratch())
    photo, cut, text, empty = (str(folder / n) for n in ("a.png", "cut.png", "text.png", "no.png"))
    cv2.imwrite(photo, IMAGE)
    Path(cut).write_bytes(Path(photo).read_bytes()[:200])
    Path(text).write_text("not a picture")
    Path(empty).touch()
    steering = str(folder / "\x1b[31mred\n.png")

    def run(*words: str) -> Callable[[], Any]:
        def call() -> Any:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(words))
            return code, out.getvalue(), err.getvalue()

        return call

    def one_line(result: Any) -> bool:
        code, out, err = result
        clean = err.startswith("kd-cv: error: ") and err.count("\n") == 1 and err[:-1].isprintable()
        return code == 2 and out == "" and clean

    lines = [
        ("match", photo), ("match", photo, photo, photo), ("match", photo, "/no.png"),
        ("match", photo, cut), ("match", text, photo), ("match", empty, empty),
        ("match", photo, str(folder)), ("match", photo, "/dev/null"), ("match", photo, steering),
        ("match", photo, photo, "--ratio", "nan"), ("match", photo, photo, "--ratio", "2"),
        ("match", photo, photo, "--ratio", "x"), ("match", photo, photo, "--threshold", "-1"),
        ("match", photo, photo, "--threshold", "inf"), ("match", photo, photo, "--ratio"),
        ("match", photo, photo, "--max-keypoints", "0"),
        ("match", photo, photo, "--descriptor", "surf"), ("match", photo, photo, "--detector", "x"),
        ("match", photo, photo, "--weights", "mars"), ("match", photo, photo, "--weights", cut),
        ("match", photo, photo, "--weights", "no.npz"), ("match", photo, photo, "-o", photo),
        ("match", photo, photo, "-o", "/nowhere/m.png"), ("match", photo, photo, "-o", "m.xyz"),
        ("match", photo, photo, "-o", str(folder)), ("match", photo, photo, "--report", photo),
        ("match", photo, photo, "--save-homography", "H.exe"), ("match", "a\0b", photo),
        ("match", "x" * 5000, photo), ("nonsense",), ("--nonsense",), ("match", "--", "--help"),
        ("explain", photo, photo, "--match", "-1"), ("explain", photo, photo, "--at", "x", "1"),
        ("figures", "nonsense", "-o", str(folder)), ("eval", "nonsense"),
        ("eval", "phototourism", str(folder)), ("eval", "hpatches", "/nowhere"),
        ("extract", "/nowhere", "-o", str(folder / "f.h5")), ("extract", photo), ("extract",),
        ("export", "-o", "/nowhere/m.onnx"), ("bench", "--only", "nonsense"),
        ("fit", "/nowhere", "-o", str(folder / "w.npz")),
    ]  # fmt: skip
    for words in lines:
        shown = " ".join(word if len(word) < 30 else Path(word).name[-20:] for word in words)
        yield f"kd-cv {shown!r}", run(*words), one_line

    def found(result: Any) -> bool:
        return result[0] in (0, 1) and isinstance(json.loads(result[1])["matches"], int)

    yield "kd-cv match --json", run("match", photo, photo, "--json"), found
    many = run("match", photo, photo, "--json", "--max-keypoints", "9" * 40)
    yield "kd-cv match --max-keypoints 999...", many, found
    yield "kd-cv, and no words", run(), lambda result: result[0] == 0 and "match" in result[1]

    def into_a_closed_pipe() -> Any:
        reader, writer = os.pipe()
        os.close(reader)
        program = "from kd_cv.cli import main; raise SystemExit(main())"
        with os.fdopen(writer, "wb") as pipe:
            child = subprocess.run(
                [sys.executable, "-c", program, "weights"],
                stdout=pipe, stderr=subprocess.PIPE, timeout=HANG, check=False,
            )  # fmt: skip
        return child.returncode

    yield "kd-cv weights | a closed pipe", into_a_closed_pipe, lambda code: code >= 0


def processes() -> Calls:
    kd = KDDescriptor()
    points = to_keypoints(
        np.column_stack([rng.uniform(0, 80, (500, 2)), rng.uniform(1, 9, 500), np.zeros(500)])
    )
    expected = kd.compute(IMAGE, points)[1]

    def threads(work: Callable[[], Any], count: int = 16) -> bool:
        results: list[bool] = []

        def run() -> None:
            results.append(bool(work()))

        pool = [threading.Thread(target=run) for _ in range(count)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        return results == [True] * count

    def same() -> bool:
        return np.array_equal(kd.compute(IMAGE, points)[1], expected)

    def reads(path: Path) -> bool:
        own = KDDescriptor(whitening=None)
        own.read(path)
        return own.descriptorSize() == 128

    yield "16 threads, one object", lambda: threads(same), bool
    yield "16 threads, an object each", lambda: threads(
        lambda: np.array_equal(KDDescriptor().compute(IMAGE, points)[1], expected)
    ), bool  # fmt: skip
    yield "16 threads match", lambda: threads(lambda: match(IMAGE, IMAGE).keypoints0), bool
    path = Path(scratch()) / "kd.yml"

    def read_and_write() -> bool:
        kd.write(path)
        return threads(lambda: (kd.write(path), reads(path)), 8)

    yield "8 threads write and read one file", read_and_write, bool

    def counts() -> bool:
        before = cv2.getNumThreads()
        try:
            results = []
            for count in (0, 1, 2, 7, 64):
                cv2.setNumThreads(count)
                results.append(same())
            return all(results)
        finally:
            cv2.setNumThreads(before)
            # OpenCV ends its surplus threads when it next shares out work; a fork before that
            # crashes the child in any of its functions.
            cv2.GaussianBlur(np.zeros((2000, 2000), np.uint8), (0, 0), 3.0)

    yield "any number of OpenCV's threads", counts, bool

    def in_child(method: str) -> Callable[[], bool]:
        def call() -> bool:
            context = multiprocessing.get_context(method)
            here, there = context.Pipe()
            frames = np.array([[*k.pt, k.size, k.angle] for k in points])
            child = context.Process(target=_describe, args=(there, kd, IMAGE, frames))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a fork beside threads: that is the test
                child.start()
            good = here.poll(HANG / 2) and np.array_equal(here.recv(), expected)
            child.join(5)
            if child.is_alive():
                child.kill()
            return bool(good) and child.exitcode == 0

        return call

    yield "after a fork", in_child("fork"), bool
    yield "after a fork, again", in_child("fork"), bool
    yield "in a spawned process", in_child("spawn"), bool

    def fork_among_threads() -> bool:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                same()

        busy = [threading.Thread(target=work) for _ in range(3)]
        for thread in busy:
            thread.start()
        try:
            return all(in_child("fork")() for _ in range(3))
        finally:
            stop.set()
            for thread in busy:
                thread.join()

    yield "forks while threads compute", fork_among_threads, bool

    def homeless() -> bool:
        before = Path.cwd()
        gone = Path(tempfile.mkdtemp(dir=scratch()))
        os.chdir(gone)
        gone.rmdir()
        try:
            return same() and KDDescriptor().descriptorSize() == 128
        finally:
            os.chdir(before)

    yield "the working folder is deleted", homeless, bool

    def poor() -> bool:
        """Little memory: an error, or a result, but no crash."""
        program = """
            import resource, numpy as np, cv2
            from kd_cv import KDDescriptor
            image = np.random.default_rng(0).integers(0, 255, (3000, 3000)).astype(np.uint8)
            points = [cv2.KeyPoint(float(x), float(x), 300.0) for x in range(0, 3000, 2)]
            kd = KDDescriptor()
            kd.compute(image, points[:9])
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20),) * 2)
            try:
                kd.compute(image.astype(np.float32), points * 100)
            except (MemoryError, RuntimeError, cv2.error):
                pass
            print("alive")
        """
        import textwrap

        child = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
            capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        return child.stdout == "alive\n" and child.returncode == 0

    if sys.platform == "linux":
        yield "hardly any memory left", poor, bool


def _describe(connection: Any, kd: KDDescriptor, image: np.ndarray, frames: np.ndarray) -> None:
    connection.send(kd.compute(image, to_keypoints(frames))[1])


def cache() -> Calls:
    """Numba's folder of compiled functions: not there, deleted while in use, full of rubbish."""
    program = """
        import os, pathlib, shutil, sys
        import numpy as np, cv2
        from kd_cv import KDDescriptor
        image = np.random.default_rng(0).integers(0, 255, (60, 60)).astype(np.uint8)
        points = [cv2.KeyPoint(30.0, 30.0, 3.0)]
        first = KDDescriptor().compute(image, points)[1]
        folder = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
        assert any(folder.rglob("*.nb?")), "nothing was cached"
        shutil.rmtree(folder)
        assert np.array_equal(KDDescriptor().compute(image, points)[1], first)
        assert KDDescriptor().compute(image.astype(np.float32), points)[1].any()
    """
    import textwrap

    def call() -> Any:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(Path(scratch()) / "not there yet")}
        child = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
            capture_output=True, text=True, timeout=10 * HANG, check=False, env=env,
        )  # fmt: skip
        return child.returncode, child.stderr[-300:]

    yield "the cache is deleted while in use", call, lambda result: result == (0, "")


def torch_modules() -> Calls:
    try:
        import torch
    except ImportError:
        return
    from kd_cv import KDModule

    module = KDModule()
    shape = raises(ValueError, TypeError, words="patches must be|takes patches")
    for size in ((), (3,), (32, 32), (2, 32, 32), (2, 3, 32, 32), (2, 1, 31, 31), (1,) * 5):
        yield f"KDModule: {size}", lambda size=size: module(torch.zeros(size)), shape
    for dtype in (torch.uint8, torch.int64, torch.bool, torch.complex64):
        yield (
            f"KDModule: {dtype}",
            lambda dtype=dtype: module(torch.zeros((2, 1, 32, 32), dtype=dtype)),
            shape,
        )
    finite = torch.rand(2, 1, 32, 32)
    layouts = {
        "transposed": finite.transpose(2, 3), "expanded": finite[:1].expand(5, 1, 32, 32),
        "no patches": finite[:0], "1e30": finite * 1e30, "float16": finite.half(),
        "strided": torch.rand(2, 1, 64, 64)[:, :, ::2, ::2], "flat": torch.ones(2, 1, 32, 32),
    }  # fmt: skip
    for name, value in layouts.items():
        yield (
            f"KDModule: {name}",
            lambda value=value: module(value),
            lambda rows: rows.shape[1] == 128 and bool(torch.isfinite(rows).all()),
        )


def misbehaving() -> Calls:
    """What this script must notice; not among the groups."""
    yield "behaves", lambda: 3, lambda result: result == 3
    yield "crashes", faulthandler._sigsegv, bool  # type: ignore[attr-defined]
    yield "ends the process", lambda: os._exit(0), bool
    yield "gives something else", lambda: 4, lambda result: result == 3
    yield "raises something else", lambda: 1 / 0, raises(ValueError)
    yield "raises without a word", lambda: int("x"), raises(ValueError, words="photograph")
    yield "raises nothing", lambda: 3, raises(ValueError)


GROUPS: dict[str, Callable[[], Calls]] = {
    "images": images,
    "keypoints": keypoints,
    "arguments": arguments,
    "settings": settings,
    "patches": patches,
    "matching": matching,
    "files": files,
    "command-line": command_line,
    "processes": processes,
    "torch": torch_modules,
    "cache": cache,
}


# Large --------------------------------------------------------------------------------------------


def large() -> bool:
    """Huge images and a million keypoints: time, and the largest memory of the process so far."""
    kd = KDDescriptor()
    kd.compute(IMAGE, POINTS)
    print(f"{'':46s}{'rows':>10s}{'seconds':>9s}{'peak':>9s}")
    behaved = []

    def step(name: str, image: np.ndarray, points: Any, test: Callable[[np.ndarray], bool]) -> None:
        start = time.perf_counter()
        _, rows = kd.compute(image, points)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        norms = np.sqrt(np.einsum("n d, n d -> n", rows, rows))
        good = bool(np.all((norms == 0) | (np.abs(norms - 1) < 1e-4))) and test(rows)
        behaved.append(good)
        print(f"{name:46s}{len(rows):10,}{seconds:9.2f}{peak:6.2f} GB{'' if good else '  WRONG'}")

    def everywhere(height: int, width: int, count: int, largest: float) -> np.ndarray:
        own = np.random.default_rng(1)
        xy = own.uniform(-50, (width + 50, height + 50), (count, 2))
        size = np.exp(own.uniform(0, np.log(largest), count))
        return np.column_stack([xy, size, own.uniform(0, 360, count)])

    tile = cv2.resize(IMAGE, (500, 500), interpolation=cv2.INTER_CUBIC)

    def tiled(height: int, width: int) -> np.ndarray:
        image = np.empty((height, width), np.uint8)
        for top in range(0, height, 500):
            row = image[top : top + 500]
            for left in range(0, width, 500):
                block = row[:, left : left + 500]
                block[:] = tile[: block.shape[0], : block.shape[1]]
        return image

    def repeated(height: int, width: int) -> np.ndarray:
        """The same point of the first tile and of tiles far away."""
        offsets = [(0, 0), (height // 500 - 2, 0), (0, width // 500 - 2),
                   (height // 500 - 2, width // 500 - 2)]  # fmt: skip
        return np.array([[740.0 + 500 * j, 750.0 + 500 * i, 3.0, 30.0] for i, j in offsets])

    def alike(rows: np.ndarray) -> bool:
        return bool(rows.any()) and bool(np.abs(rows - rows[0]).max() < 1e-3)

    def most(rows: np.ndarray) -> bool:
        return rows.any(axis=1).mean() > 0.9

    image = tiled(20_000, 20_000)
    step("20,000 x 20,000, the same point 4 times", image, to_keypoints(
        repeated(20_000, 20_000)
    ), alike)  # fmt: skip
    frames = everywhere(20_000, 20_000, 100_000, 3000.0)
    step("20,000 x 20,000, sizes to 3,000", image, to_keypoints(frames), most)
    million = everywhere(20_000, 20_000, 1_000_000, 60.0)
    step("20,000 x 20,000, a million keypoints", image, to_keypoints(million), most)
    del image
    step("60 x 80, a million keypoints", IMAGE, to_keypoints(
        everywhere(60, 80, 1_000_000, 8.0)
    ), lambda rows: bool(rows.any()))  # fmt: skip
    for name, row in (("1 x 1,000,000", tile[:1]), ("1,000,000 x 1", tile[:, :1])):
        line = np.tile(row, (1, 2000) if len(row) == 1 else (2000, 1))
        step(name, line, to_keypoints(everywhere(*line.shape, 10_000, 3000.0)), lambda rows: True)
    line = np.tile(tile[:1], (1, 33_000))
    step(f"1 x {line.shape[1]:,}", line, to_keypoints(
        everywhere(*line.shape, 10_000, 1e6)
    ), lambda rows: True)  # fmt: skip
    free = available_memory()
    if free > 8:
        image = tiled(47_000, 47_000)  # more than 2^31 pixels
        step("47,000 x 47,000, the same point 4 times", image, to_keypoints(
            repeated(47_000, 47_000)
        ), alike)  # fmt: skip
        frames = everywhere(47_000, 47_000, 20_000, 3000.0)
        step("47,000 x 47,000, sizes to 3,000", image, to_keypoints(frames), most)
    else:
        print(f"47,000 x 47,000: left out, only {free:.1f} GB of memory are free")
    return all(behaved)


def available_memory() -> float:
    """In GB, as Linux reckons it; 0 elsewhere."""
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
        return int(found[1]) / 2**20 if found else 0.0
    return 0.0


# Running ------------------------------------------------------------------------------------------

_scratch: list[tempfile.TemporaryDirectory[str]] = []


def scratch() -> str:
    """A new folder in one that is removed when the process ends."""
    if not _scratch:
        _scratch.append(tempfile.TemporaryDirectory())
    return tempfile.mkdtemp(dir=_scratch[0].name)


def behaves(function: Callable[[], Any], expected: Callable[[Any], bool] | Raises) -> str:
    """What a call did that it should not have; nothing if it behaved."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        try:
            result = function()
        except BaseException as error:
            if not isinstance(expected, Raises):
                return f"raised {type(error).__name__}: {error}"
            if not isinstance(error, expected.types):
                return f"raised {type(error).__name__}, not one of {expected.types}: {error}"
            if not re.search(expected.words, str(error), re.DOTALL):
                return f"raised {type(error).__name__} without {expected.words!r}: {error}"
            return ""
    if isinstance(expected, Raises):
        return f"raised nothing, but gave {result!r:.100}"
    if not expected(result):
        return f"gave {result!r:.300}"
    ours = [w for w in caught if "kd_cv" in w.filename]
    return f"warned: {ours[0].message}" if ours else ""


def run_child(group: str, first: int) -> None:
    """The calls of a group from `first` on; two lines of JSON for each."""
    faulthandler.enable()
    say = os.fdopen(os.dup(1), "w", buffering=1)
    calls = GROUPS.get(group, misbehaving)
    for index, (name, function, expected) in enumerate(calls()):
        if index < first:
            continue
        print(json.dumps({"begin": index, "name": name}), file=say)
        faulthandler.dump_traceback_later(10 * HANG if group == "cache" else HANG, exit=True)
        wrong = behaves(function, expected)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"end": index, "wrong": wrong}), file=say)


def run_group(group: str) -> tuple[int, list[str]]:
    """How many calls a group made, and what went wrong."""
    count, wrong, first = 0, [], 0
    while True:
        child = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--child", group, str(first)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        begun = ended = first - 1
        names = {}
        for line in child.stdout.splitlines():
            report = json.loads(line)
            if "begin" in report:
                begun, names[report["begin"]] = report["begin"], report["name"]
                count += 1
            else:
                ended = report["end"]
                if report["wrong"]:
                    wrong.append(f"{names[ended]}: {report['wrong']}")
        if child.returncode == 0 and begun == ended:
            return count, wrong
        trace = " | ".join(child.stderr.split("Extension modules")[0].splitlines()[-12:])
        where = names.get(begun, "before its first call") if begun > ended else "between calls"
        wrong.append(f"{where}: the process ended with {child.returncode}: {trace}")
        if begun <= ended:
            return count, wrong
        first = begun + 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--large", action="store_true", help="images of gigabytes instead")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"unknown group {', '.join(sorted(unknown))}: there are {', '.join(GROUPS)}")
    if options.child:
        run_child(options.child[0], int(options.child[1]))
        return 0
    if options.large:
        return 0 if large() else 1
    total, failures = 0, 0
    for group in options.groups or GROUPS:
        start = time.perf_counter()
        count, wrong = run_group(group)
        total, failures = total + count, failures + len(wrong)
        print(f"{group:14s}{count:5d} calls {time.perf_counter() - start:6.1f} s", flush=True)
        for text in wrong:
            print(f"    {text}", flush=True)
    print(f"{total} hostile calls, {failures} of them misbehaved")
    return 1 if failures or not total else 0


if __name__ == "__main__":
    raise SystemExit(main())
