"""One self-contained HTML page of a pair of matched photographs, for `kd-cv match --report`.

The content security policy admits the page's own style and script, by their hashes, and embedded
images. Patches and heat maps are sheets of small gray tiles, two a match; the page colours them.
"""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import resizing
from kd_cv.explain import heat_limit, heat_maps, part_names
from kd_cv.gray import as_gray
from kd_cv.io.files import replacing
from kd_cv.io.images import reduced
from kd_cv.keypoints import from_keypoints, views_of
from kd_cv.matching.result import MatchResult, named_failure
from kd_cv.matching.two_view import NAMES, WORDS
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.types import Feature
from kd_cv.views import affine_of
from kd_cv.viz import palette
from kd_cv.viz.matches import MAX_LINES, as_bgr

MAX_SIDE = 1600  # of an embedded photograph
MAX_MATCHES = 2000  # on the page, of all descriptors together: the most certain of each
TILE = 32  # side of a patch or heat map on the page, at most
COLUMNS = 32  # tiles in a row of a sheet
QUALITY = 80  # of all embedded images
Image = NDArray[np.uint8]
Results = Mapping[str, tuple[MatchResult, Feature]]


def write_report(
    path: str | os.PathLike[str],
    image0: Image,
    image1: Image,
    results: Results,
    *,
    names: tuple[str, str],
    threshold: float = 3.0,
) -> None:
    """Write a page of two matched images to a file, whole or not at all.

    image0, image1  (H, W, 3) BGR
    results         title -> result of `match` with `threshold`, and its descriptor, the one to
                    show first. Matches of a KDDescriptor have heat maps
    names           of the two photographs

    >>> images = [cv2.merge([image] * 3) for image in (image0, image1)]
    >>> write_report("report.html", *images, {"KD": (result, KDDescriptor())}, names=("a", "b"))
    """
    text = page_of((image0, image1), names, results, threshold)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page_of(
    images: tuple[Image, Image], names: tuple[str, str], results: Results, threshold: float = 3.0
) -> str:
    """Return the page of `write_report` as text."""
    small0, small1 = (reduced(as_bgr(image), MAX_SIDE) for image in images)
    # Bytes of a file name that are no text become question marks.
    name0, name1 = (name.encode("utf-8", "replace").decode("utf-8") for name in names)
    parts: list[dict[str, Any]] = []
    sheets = ""
    for title, (result, descriptor) in results.items():
        shown = _shown(result, threshold, MAX_MATCHES // len(results))
        note = _note(result, len(shown[0]), threshold)
        part, tiles = _part(images, (name0, name1), title, result, descriptor, shown)
        for kind, pairs in tiles.items():
            source = _webp(_sheet(pairs))
            sheets += f'<img id="{kind}{len(parts)}" alt="" src="{source}" hidden>\n'
        parts.append({**part, "note": note})
    first, _ = next(iter(results.values()))
    H_0to1 = first.H_0to1 if first.success else None
    data = {
        "sizes": [list(image.shape[1::-1]) for image in images],
        "ratio": float(first.ratio),
        "lines": MAX_LINES,
        "columns": COLUMNS,
        "overlay": H_0to1 is not None,
        "palette": {
            "inlier": palette.INLIER,
            "outlier": palette.OUTLIER,
            "outline": palette.OUTLINE,
            "heat": [palette.hexadecimal(color) for color in palette.diverging_colors()],
        },
        "descriptors": parts,
    }
    return _fill(
        {
            "NAME0": html.escape(name0),
            "NAME1": html.escape(name1),
            "IMAGE0": _webp(small0),
            "IMAGE1": _webp(small1),
            "WARPED": _webp(_overlay(small0, small1, H_0to1, *(im.shape for im in images))),
            "SHEETS": sheets,
            # "<" could end the script element that holds the data.
            "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        }
    )


def _part(
    images: tuple[Image, Image],
    names: tuple[str, str],
    title: str,
    result: MatchResult,
    descriptor: Feature,
    shown: tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]],
) -> tuple[dict[str, Any], dict[str, Image]]:
    """Return the data of a descriptor's matches for the script, and its tiles."""
    matches, ratios, inliers = shown
    kd = descriptor
    if not isinstance(kd, KDDescriptor):  # the patches of SIFT
        kd = KDDescriptor(patch_size=TILE, whitening=None, magnification="sift")
    matched = (
        [keypoints[i] for i in indices.tolist()]
        for keypoints, indices in zip(
            (result.keypoints0, result.keypoints1), matches.T, strict=True
        )
    )
    both = [(kd.frames(keypoints), views_of(keypoints)) for keypoints in matched]
    stack0, stack1 = (
        kd.extractor.patches(as_gray(image), *frames)
        for image, frames in zip(images, both, strict=True)
    )
    largest = int(np.argmax(kd.settings.scales))
    side = kd.settings.side * kd.settings.scales[largest]  # of that patch, in keypoint sizes
    tiles = {"patches": _stretched(_small([stack0[:, largest], stack1[:, largest]]))}
    heat: dict[str, Any] = {"noHeat": "", "similarity": [], "shares": {}}
    if kd is not descriptor:
        heat["noHeat"] = f"No heat maps: a histogram of {title} is no sum over pixels."
    elif kd.projection is not None and kd.projection.power != 1.0:
        heat["noHeat"] = "No heat maps: this whitening takes a square root of the sum over pixels."
    else:
        maps = heat_maps(stack0, stack1, kd.settings)
        tiles["heats"] = _levels(_small([maps.heat0, maps.heat1]))
        heat["similarity"] = np.round(maps.similarity, 4).tolist()
        parts = part_names(kd.settings.spec)
        if len(parts) > 1:
            shares = np.round(maps.shares.T, 4).tolist()
            heat["shares"] = dict(zip(parts, shares, strict=True))
    words = WORDS[result.model] if result.success else ("", "")
    data = {
        "title": title,
        **_counts(title, result, names, len(ratios)),
        "cut": len(ratios) < len(result.candidates[1]),
        "words": [f"inliers {words[0]}".strip(), f"outliers {words[1]}".strip()],
        "one": ["inlier", "outlier"],
        "points": [np.round(frames[:, :2], 2).tolist() for frames, _ in both],
        "windows": [
            np.round(side * affine_of(*frames), 2).reshape(-1, 4).tolist() for frames in both
        ],
        "views": [views.tolist() for _, views in both],
        "ratios": np.round(ratios.astype(np.float64), 4).tolist(),
        "inliers": inliers.astype(int).tolist(),
        "H": H.tolist() if result.success and (H := result.H_0to1) is not None else None,
        "F": F.tolist() if result.success and (F := result.F_0to1) is not None else None,
        "tile": int(tiles["patches"].shape[-1]),
    }
    return data | heat, tiles


def _counts(title: str, result: MatchResult, names: tuple[str, str], shown: int) -> dict[str, str]:
    found, why = f"{NAMES[result.model]} found", ""
    if not result.success or not shown:
        why = named_failure(result, names)
    if not result.success:
        found = f"no {found}" + (f": {why}" if shown else "")
    counts = (
        f"{result.inliers.sum()} inliers of {len(result.matches)} matches at ratio "
        f"{result.ratio:g} · {found}"
    )
    nothing = "" if shown else f"{why}."
    return {"summary": f"{title} · {counts}", "counts": counts, "nothing": nothing}


def _shown(
    result: MatchResult, threshold: float, most: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
    """Return matches, ratios and inliers of the page, the smallest ratio first.

    Matches that fail the ratio test are inliers where they agree with the result's model.
    """
    matches, ratios = result.candidates
    points0, points1 = (
        from_keypoints(keypoints)[indices, :2]
        for keypoints, indices in zip(
            (result.keypoints0, result.keypoints1), matches.T, strict=True
        )
    )
    inliers = result.errors(points0, points1) <= threshold
    inliers[ratios <= result.ratio] = result.inliers
    order = np.argsort(ratios, kind="stable")[:most]
    return matches[order], ratios[order], inliers[order]


def _note(result: MatchResult, shown: int, threshold: float) -> str:
    candidates = len(result.candidates[1])
    part = f"The {shown} most certain of {candidates}" if shown < candidates else f"All {shown}"
    note = (
        f"{part} mutual nearest neighbours are on this page. The ratio is the distance to the "
        "nearest neighbour over that to the second nearest: small is certain."
    )
    if not result.success:
        return note
    return f"{note} Inliers agree with the {NAMES[result.model]} within {threshold:g} pixels."


def _small(sides: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Tiles (N, P, P) of both images in turn, reduced to TILE pixels a side: (N, 2, P, P)."""
    pairs = np.stack(sides, axis=1).astype(np.float32)
    if pairs.shape[2] <= TILE:
        return pairs
    flat = pairs.reshape(-1, *pairs.shape[2:])
    small = [cv2.resize(tile, (TILE, TILE), interpolation=cv2.INTER_AREA) for tile in flat]
    return np.array(small, np.float32).reshape(-1, 2, TILE, TILE)


def _stretched(pairs: NDArray[np.float32]) -> Image:
    """Each tile of (N, 2, P, P) from its darkest to its brightest pixel."""
    low, high = pairs.min(axis=(2, 3), keepdims=True), pairs.max(axis=(2, 3), keepdims=True)
    return np.rint(255 * (pairs - low) / np.maximum(high - low, 1e-6)).astype(np.uint8)


def _levels(pairs: NDArray[np.float32]) -> Image:
    """Heat maps (N, 2, P, P) as colours of the palette; the two of a match alike."""
    limits = np.array([heat_limit(*pair) for pair in pairs]).reshape(-1, 1, 1, 1)
    return palette.heat_levels(pairs / limits)


def _sheet(pairs: Image) -> Image:
    """Tiles (N, 2, P, P) side by side, COLUMNS in a row."""
    count, size = 2 * len(pairs), pairs.shape[-1]
    height = max(1, -(-count // COLUMNS))
    padded = np.zeros((height * COLUMNS, size, size), np.uint8)
    padded[:count] = pairs.reshape(-1, size, size)
    grid = padded.reshape(height, COLUMNS, size, size).swapaxes(1, 2)
    return grid.reshape(height * size, COLUMNS * size)


def _overlay(
    small0: Image,
    small1: Image,
    H_0to1: NDArray[np.float64] | None,
    shape0: tuple[int, ...],
    shape1: tuple[int, ...],
) -> Image:
    """Warp image 0 over a dimmed image 1, reduced copies of images of shape0 and shape1."""
    if H_0to1 is None:
        return np.zeros((1, 1, 3), np.uint8)
    S0, S1 = resizing(shape0, small0.shape), resizing(shape1, small1.shape)
    small_H_0to1 = S1 @ H_0to1 @ np.linalg.inv(S0)
    size = small1.shape[1::-1]
    warped = cv2.warpPerspective(small0, small_H_0to1, size)
    inside = cv2.warpPerspective(np.ones(small0.shape[:2], np.uint8), small_H_0to1, size)
    return np.where(inside[:, :, None] > 0, warped, small1 // 3)


def _webp(image: Image) -> str:
    """A data URI."""
    encoded = cv2.imencode(".webp", image, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1]
    return "data:image/webp;base64," + base64.b64encode(encoded.tobytes()).decode("ascii")


def _fill(values: Mapping[str, str]) -> str:
    """The template with each @@NAME@@ replaced, in one pass: values are not searched again."""
    template = (resources.files("kd_cv") / "report.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", template, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        hashes[f"{tag.upper()}_HASH"] = f"'sha256-{digest}'"
    values = {**values, **hashes}
    return re.sub("@@([A-Z0-9_]+)@@", lambda found: values[found[1]], template)
