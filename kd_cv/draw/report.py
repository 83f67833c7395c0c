"""One self-contained HTML page of a pair of matched photographs, for `kd-cv match --report`.

The page needs no network and allows none: its content security policy admits the page's own style
and script, by their hashes, and embedded images.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import (
    MAGNIFICATIONS,
    Frames,
    as_gray,
    from_keypoints,
    resized_points,
    to_corner,
)
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.draw import palette
from kd_cv.explain import Explanation, explain, explain_patches
from kd_cv.feature2d import KDDescriptor
from kd_cv.geometry import reprojection_errors
from kd_cv.io.files import replacing
from kd_cv.io.images import reduced
from kd_cv.matching import RATIO, MatchResult

MAX_SIDE = 1600  # of an embedded photograph
MAX_MATCHES = 2000  # on the page: the most certain
MAX_EXPLAINED = 250  # with heat maps, of the inliers and of the outliers: the most certain
COLUMNS = 32  # tiles in a row of a sheet
Image = NDArray[np.uint8]


def write_report(
    path: str | os.PathLike[str],
    image0: Image,
    image1: Image,
    result: MatchResult,
    **options: Any,
) -> None:
    """Write the page of `report_page` to a file, whole or not at all."""
    page = report_page(image0, image1, result, **options)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def report_page(
    image0: Image,
    image1: Image,
    result: MatchResult,
    *,
    names: tuple[str, str],
    descriptor: Any,
    title: str = "KD",
    ratio: float = RATIO,
    threshold: float = 3.0,
) -> str:
    """The page as text.

    image0, image1  (H, W, 3) BGR
    result          of matching with `ratio` and `threshold`; the slider shows its candidates
    descriptor      that made them; a KDDescriptor is explained by heat maps
    """
    small0, small1 = reduced(image0, MAX_SIDE), reduced(image1, MAX_SIDE)
    matches, ratios, inliers = _on_page(result, ratio, threshold)
    frames_of = descriptor.frames if isinstance(descriptor, KDDescriptor) else from_keypoints
    frames = [
        frames_of([keypoints[i] for i in rows.tolist()])
        for keypoints, rows in zip((result.keypoints0, result.keypoints1), matches.T, strict=True)
    ]
    explanations = _explain(image0, image1, frames, inliers, descriptor)
    patches = [
        _patches(image, frame, descriptor)
        for image, frame in zip((image0, image1), frames, strict=True)
    ]
    positions = [frame[:, :2] for frame in frames]
    scales = [
        np.array(small.shape[1::-1]) / np.array(image.shape[1::-1])
        for image, small in ((image0, small0), (image1, small1))
    ]
    H_0to1 = result.H_0to1 if result.success else None
    heat_rows = {row: place for place, row in enumerate(explanations)}
    data = {
        "points": [_rounded(to_corner(p) * s) for p, s in zip(positions, scales, strict=True)],
        "position": [_rounded(p) for p in positions],
        "ratio": np.round(ratios.astype(np.float64), 6).tolist(),
        "inlier": inliers.astype(int).tolist(),
        "overlay": H_0to1 is not None,
        "tile": patches[0].shape[1],
        "columns": COLUMNS,
        "heat": [heat_rows.get(i, -1) for i in range(len(ratios))],
        "similarity": [round(why.similarity, 4) for why in explanations.values()],
        "shares": _shares(list(explanations.values())),
        "noHeat": _why_no_heat(descriptor),
    }
    inlier_count = int(result.inliers.sum())
    found = "homography found" if result.success else "no homography found"
    return _fill(
        {
            "NAME0": _escaped(names[0]),
            "NAME1": _escaped(names[1]),
            "SUMMARY": html.escape(
                f"{title} · {inlier_count} inliers of {len(result.matches)} matches at ratio "
                f"{ratio:g} · {found}"
            ),
            "NOTE": html.escape(_note(len(ratios), len(result.candidates[1]), threshold)),
            "RATIO": f"{ratio:.6g}",
            "RATIO_MIN": f"{min(0.3, ratio):.6g}",
            "IMAGE0": _jpeg(small0),
            "IMAGE1": _jpeg(small1),
            "WARPED": _jpeg(_overlay(small0, small1, H_0to1, scales)),
            "PATCHES": _jpeg(_sheet(_alternating(*patches))),
            "HEATS": _jpeg(_sheet(_heat_tiles(list(explanations.values())))),
            # "<" could end the script element that holds the data.
            "DATA": json.dumps(data).replace("<", "\\u003c"),
        }
    )


def _on_page(
    result: MatchResult,
    ratio: float,
    threshold: float,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
    """Matches, ratios and inliers of the page, the most certain first.

    What passes the ratio test is what `result` says; the rest is measured against its homography.
    """
    matches, ratios = result.candidates
    inliers = np.zeros(len(matches), bool)
    passed = ratios <= ratio
    if result.H_0to1 is not None:
        points0, points1 = (
            from_keypoints(keypoints)[rows, :2]
            for keypoints, rows in zip(
                (result.keypoints0, result.keypoints1), matches.T, strict=True
            )
        )
        inliers = reprojection_errors(points0, points1, result.H_0to1) <= threshold
    inliers[passed] = result.inliers
    order = np.argsort(ratios, kind="stable")[:MAX_MATCHES]
    return matches[order], ratios[order], inliers[order]


def _explain(
    image0: Image,
    image1: Image,
    frames: list[Frames],
    inliers: NDArray[np.bool_],
    descriptor: Any,
) -> dict[int, Explanation]:
    """Explanations by row: of the most certain inliers and the most certain outliers."""
    if not _explainable(descriptor):
        return {}
    rows = [i for kind in (inliers, ~inliers) for i in np.flatnonzero(kind)[:MAX_EXPLAINED]]
    gray0, gray1 = as_gray(image0), as_gray(image1)
    if descriptor.settings.scales != (1.0,):
        return {int(i): explain(gray0, frames[0][i], gray1, frames[1][i], descriptor) for i in rows}
    # One pyramid for all patches of an image.
    patches0, patches1 = (
        _patches(gray, frame[rows], descriptor)
        for gray, frame in ((gray0, frames[0]), (gray1, frames[1]))
    )
    return {
        int(i): explain_patches(p0, p1, descriptor.spec, descriptor.projection)
        for i, p0, p1 in zip(rows, patches0, patches1, strict=True)
    }


def _explainable(descriptor: Any) -> bool:
    if not isinstance(descriptor, KDDescriptor):
        return False
    return descriptor.projection is None or descriptor.projection.power == 1.0


def _why_no_heat(descriptor: Any) -> str:
    if not _explainable(descriptor):
        return "This descriptor cannot be shared out among the pixels: there are no heat maps."
    return f"Only the {MAX_EXPLAINED} most certain inliers and outliers have heat maps here."


def _patches(image: Image, frames: Frames, descriptor: Any) -> NDArray[np.float32]:
    """What the descriptor sees (N, P, P); for SIFT its window, in 32 x 32 samples."""
    if not isinstance(descriptor, KDDescriptor):
        return extract_patches(image, frames, 32, MAGNIFICATIONS["sift"])
    largest = int(np.argmax(descriptor.settings.scales))
    return descriptor.settings.patches(as_gray(image), frames)[:, largest]


def _alternating(patches0: NDArray[np.float32], patches1: NDArray[np.float32]) -> Image:
    """Tiles (2 N, P, P) of both images in turn, each from its darkest to its brightest pixel."""
    tiles = np.stack([patches0, patches1], axis=1).reshape(-1, *patches0.shape[1:])
    low, high = tiles.min(axis=(1, 2), keepdims=True), tiles.max(axis=(1, 2), keepdims=True)
    return np.rint(255 * (tiles - low) / np.maximum(high - low, 1e-6)).astype(np.uint8)


def _heat_tiles(explanations: list[Explanation]) -> Image:
    """Tiles (2 N, P, P, 3) BGR of the heat maps of both images in turn."""
    tiles = [
        palette.heat_rgb(maps[why.name], why.limit())[:, :, ::-1]
        for why in explanations
        for maps in (why.heat0, why.heat1)
    ]
    return np.array(tiles, np.uint8) if tiles else np.zeros((0, 1, 1, 3), np.uint8)


def _shares(explanations: list[Explanation]) -> dict[str, list[float]]:
    parts = {"polar": "polar", "cart": "Cartesian"}
    if not explanations or len(explanations[0].shares) < 2:
        return {}
    return {
        title: [round(why.shares[part], 4) for why in explanations] for part, title in parts.items()
    }


def _sheet(tiles: Image) -> Image:
    """Tiles (N, P, P, ...) side by side, COLUMNS in a row."""
    count, size = tiles.shape[:2]
    rows = max(1, -(-count // COLUMNS))
    padded = np.zeros((rows * COLUMNS, *tiles.shape[1:]), np.uint8)
    padded[:count] = tiles
    grid = padded.reshape(rows, COLUMNS, *tiles.shape[1:]).swapaxes(1, 2)
    return grid.reshape(rows * size, COLUMNS * size, *tiles.shape[3:])


def _overlay(
    small0: Image,
    small1: Image,
    H_0to1: NDArray[np.float64] | None,
    scales: list[NDArray[np.float64]],
) -> Image:
    """Image 0 as seen from image 1; around it image 1, dimmed. One pixel without a homography."""
    if H_0to1 is None:
        return np.zeros((1, 1, 3), np.uint8)
    S0, S1 = (_scaling(scale) for scale in scales)
    small_H_0to1 = S1 @ H_0to1 @ np.linalg.inv(S0)
    size = small1.shape[1::-1]
    warped = cv2.warpPerspective(small0, small_H_0to1, size)
    inside = cv2.warpPerspective(np.ones(small0.shape[:2], np.uint8), small_H_0to1, size)
    return np.where(inside[:, :, None] > 0, warped, small1 // 3)


def _scaling(scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """(3, 3) from an image to its resized copy."""
    H_0to1 = np.diag([*scale, 1.0])
    H_0to1[:2, 2] = resized_points(np.zeros(2), scale)
    return H_0to1


def _jpeg(image: Image) -> str:
    """A data URI."""
    encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 88])[1]
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode("ascii")


def _rounded(points: NDArray[np.float64]) -> list[list[float]]:
    return [[round(x, 2), round(y, 2)] for x, y in points.tolist()]


def _note(shown: int, candidates: int, threshold: float) -> str:
    part = f"The {shown} most certain of {candidates}" if shown < candidates else f"All {shown}"
    return (
        f"{part} mutual nearest neighbours are on this page. The ratio is the distance to the "
        "nearest neighbour over that to the second nearest: small is certain. Inliers agree with "
        f"the homography within {threshold:g} pixels."
    )


def _escaped(name: str) -> str:
    # Bytes of a file name that are no text become question marks.
    return html.escape(name.encode("utf-8", "replace").decode("utf-8"))


def _fill(values: Mapping[str, str]) -> str:
    """The template with each @@NAME@@ replaced, in one pass: values are not searched again."""
    template = (resources.files("kd_cv.draw") / "report.html").read_text(encoding="utf-8")
    # Into the style first: the hash is that of what the browser reads.
    for name in ("INLIER", "OUTLIER"):
        template = template.replace(f"@@{name}@@", getattr(palette, name))
    hashes = {
        f"{tag.upper()}_HASH": _hash(re.findall(f"<{tag}>(.*?)</{tag}>", template, re.DOTALL)[0])
        for tag in ("style", "script")
    }
    values = {**values, **hashes}
    return re.sub("@@([A-Z0-9_]+)@@", lambda found: values[found[1]], template)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
