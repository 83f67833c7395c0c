"""The picture of matches: keypoints, inliers and outliers of two images, seen at a glance.

>>> sheet = draw_matches(image0, image1, {"KD": result})
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import from_corner, resized_points
from kd_cv.gray import as_detectable, as_gray
from kd_cv.io.files import replacing
from kd_cv.matching.two_view import NAMES, WORDS, Model
from kd_cv.pictures import palette
from kd_cv.pictures.palette import Color
from kd_cv.types import Array32, KeyPoints
from kd_cv.types import Image as AnyImage

Image = NDArray[np.uint8]

INLIER, OUTLIER, KEYPOINT, OUTLINE, PAPER = map(
    palette.bgr,
    (palette.INLIER, palette.OUTLIER, palette.KEYPOINT, palette.OUTLINE, palette.PAPER),
)

GAP = 12
MARGIN = 16
BAND = 48  # height of a line of text
TEXT = 22
SUBPIXEL = 4  # binary digits of OpenCV's drawing coordinates
MAX_WIDTH = 2400
MAX_LINES = 220  # more would hide the photographs


class Matched(Protocol):
    """What is drawn of a `MatchResult`."""

    @property
    def keypoints0(self) -> KeyPoints: ...
    @property
    def keypoints1(self) -> KeyPoints: ...
    @property
    def points0(self) -> NDArray[np.float64]: ...
    @property
    def points1(self) -> NDArray[np.float64]: ...
    @property
    def ratios(self) -> Array32: ...
    @property
    def inliers(self) -> NDArray[np.bool_]: ...
    @property
    def success(self) -> bool: ...
    @property
    def model(self) -> Model: ...
    @property
    def H_0to1(self) -> NDArray[np.float64] | None: ...
    @property
    def images(self) -> tuple[Any, Any]: ...


def draw_matches(
    image0: AnyImage, image1: AnyImage, results: Mapping[str, Matched], height: int = 720
) -> Image:
    """A sheet (H, W, 3) BGR with a row for each result, under its title, and a legend.

    image0, image1  gray or BGR; results  title -> what was matched; height  of a row in pixels
    """
    if not results:
        raise ValueError("there are no results to draw")
    images = _as_bgr(image0), _as_bgr(image1)
    width = sum(height * image.shape[1] / image.shape[0] for image in images)
    height = max(1, round(height * min(1.0, MAX_WIDTH / width)))
    backdrops = [_backdrop(image, height) for image in images]
    panels = [_panel(images, backdrops, result) for result in results.values()]
    row_height = panels[0].shape[0] + BAND
    shape = (row_height * len(panels) + BAND, panels[0].shape[1] + 2 * MARGIN, 3)
    sheet = np.full(shape, PAPER, np.uint8)
    for index, panel in enumerate(panels):
        top = index * row_height + BAND
        sheet[top : top + panel.shape[0], MARGIN : MARGIN + panel.shape[1]] = panel
    titles = [
        (index * row_height + BAND // 2, title, _counts(result))
        for index, (title, result) in enumerate(results.items())
    ]
    return _write(sheet, titles, _legend(results.values()))


def draw_result(
    result: Matched, path: str | os.PathLike[str] | None = None, title: str = ""
) -> Image:
    """The sheet of one result, of the images that it holds; written to `path` if one is given."""
    if any(image is None for image in result.images):
        raise ValueError("this result holds no images: draw it with draw_matches(image0, image1)")
    sheet = draw_matches(*result.images, {title: result})
    if path is not None:
        write_picture(path, sheet)
    return sheet


def check_suffix(path: str | os.PathLike[str]) -> str:
    """What a name ends with: a kind of picture that OpenCV can write."""
    suffix = Path(path).suffix
    # By the suffix alone: there are names of files that crash OpenCV.
    if not suffix.isascii() or not cv2.haveImageWriter(f"x{suffix}"):
        raise ValueError(f"{path}: OpenCV cannot write a picture with the suffix {suffix!r}")
    return suffix


def write_picture(path: str | os.PathLike[str], picture: Image) -> None:
    """Write a picture, whole or not at all, in the format that the name ends with."""
    encoded = cv2.imencode(check_suffix(path), picture)[1]
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def _as_bgr(image: AnyImage) -> Image:
    """Any image as 8 bits and three channels."""
    if image.dtype != np.uint8 or image.ndim == 2 or image.shape[2] == 1:
        return cv2.cvtColor(as_detectable(as_gray(image)), cv2.COLOR_GRAY2BGR)
    return np.ascontiguousarray(image[:, :, :3])


def _panel(images: Sequence[Image], backdrops: Sequence[Image], result: Matched) -> Image:
    left, right = backdrops
    panel = np.hstack([left, np.full((len(left), GAP, 3), PAPER, np.uint8), right])
    offset = left.shape[1] + GAP

    def place(points: NDArray[np.float64], side: int) -> NDArray[np.float64]:
        scale = len(panel) / len(images[side])
        return resized_points(points, scale) + (side * offset, 0)

    for side, keypoints in enumerate((result.keypoints0, result.keypoints1)):
        if keypoints:
            points = cv2.KeyPoint.convert(keypoints).astype(np.float64)
            _dots(panel, place(points, side), KEYPOINT, 1.3)
    a, b = place(result.points0, 0), place(result.points1, 1)
    # Every n-th match as a line: inliers and outliers in the proportion that was found.
    drawn = np.zeros(len(result.ratios), bool)
    drawn[np.argsort(result.ratios, kind="stable")[:: _stride(result)]] = True
    dot = max(2.0, panel.shape[0] / (250 if len(drawn) <= 4 * MAX_LINES else 320))
    for chosen, color in ((result.inliers, INLIER), (~result.inliers, OUTLIER)):
        lines = panel.copy()
        ends = _fixed(np.stack([a, b], axis=1)[chosen & drawn])
        cv2.polylines(lines, list(ends), False, color, 1, cv2.LINE_AA, SUBPIXEL)
        panel = cv2.addWeighted(lines, 0.7, panel, 0.3, 0)
        for points in (a[chosen], b[chosen]):
            _dots(panel, points, color, dot)
    if result.success and result.H_0to1 is not None:
        height, width = images[0].shape[:2]
        corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
        seen = cv2.perspectiveTransform(from_corner(corners)[None], result.H_0to1)[0]
        outline = [_fixed(place(seen, 1) - (offset, 0))]
        cv2.polylines(panel[:, offset:], outline, True, OUTLINE, 2, cv2.LINE_AA, SUBPIXEL)
    return panel


def _backdrop(image: Image, height: int) -> Image:
    """The image at its height in the picture, paler, so that the lines stand out."""
    size = max(1, round(image.shape[1] * height / len(image))), height
    mode = cv2.INTER_AREA if height < len(image) else cv2.INTER_CUBIC
    image = cv2.resize(image, size, interpolation=mode)
    gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    return cv2.addWeighted(image, 0.35, gray, 0.5, 20)


def _fixed(points: NDArray[np.float64]) -> NDArray[np.int32]:
    """OpenCV's fixed-point coordinates; far outside is clipped, as integers would overflow."""
    return np.rint(np.clip(points, -1e5, 1e5) * 2**SUBPIXEL).astype(np.int32)


def _dots(panel: Image, points: NDArray[np.float64], color: Color, radius: float) -> None:
    r = round(radius * 2**SUBPIXEL)
    for x, y in _fixed(points).tolist():
        cv2.circle(panel, (x, y), r, color, -1, cv2.LINE_AA, SUBPIXEL)


def _stride(result: Matched) -> int:
    return max(1, -(-len(result.ratios) // MAX_LINES))


def _counts(result: Matched) -> str:
    text = f"{int(result.inliers.sum())} inliers of {len(result.ratios)} matches"
    if not result.success:
        text += f" · no {NAMES[result.model]}"
    if _stride(result) > 1:
        text += f" · 1 of {_stride(result)} drawn as a line"
    return text


def _legend(results: Iterable[Matched]) -> list[tuple[str, str]]:
    results = list(results)
    models = {result.model for result in results}
    words = [""] * 2
    if len(models) == 1 and any(result.success for result in results):
        words = [f", {word}" for word in WORDS[models.pop()]]
    entries = [
        (palette.INLIER, "inlier" + words[0]),
        (palette.OUTLIER, "outlier" + words[1]),
        (palette.KEYPOINT, "unmatched keypoint"),
    ]
    if any(result.success and result.H_0to1 is not None for result in results):
        entries.append((palette.OUTLINE, "image 0 seen in image 1"))
    return entries


def _write(
    sheet: Image, titles: Sequence[tuple[int, str, str]], legend: Sequence[tuple[str, str]]
) -> Image:
    """Titles (y, bold, plain) and a legend at the foot, in the font that Matplotlib ships."""
    import matplotlib
    from PIL import Image as Pillow
    from PIL import ImageDraw, ImageFont

    folder = matplotlib.get_data_path() + "/fonts/ttf/"
    canvas = Pillow.fromarray(np.ascontiguousarray(sheet[:, :, ::-1]))
    draw = ImageDraw.Draw(canvas)
    room = sheet.shape[1] - 2 * MARGIN
    for size in range(TEXT, 7, -1):  # the largest that fits
        plain = ImageFont.truetype(folder + "DejaVuSans.ttf", size)
        bold = ImageFont.truetype(folder + "DejaVuSans-Bold.ttf", size)
        headings = [bold.getlength(a) + size + plain.getlength(b) for _, a, b in titles]
        foot = sum(plain.getlength(text) + 2.5 * size for _, text in legend)
        if max(*headings, foot) <= room:
            break
    for y, title, counts in titles:
        draw.text((MARGIN, y), title, palette.INK, bold, anchor="lm")
        draw.text(
            (MARGIN + bold.getlength(title) + size, y), counts, palette.INK, plain, anchor="lm"
        )
    x, y = float(MARGIN), sheet.shape[0] - BAND // 2
    for color, text in legend:
        draw.ellipse((x, y - size / 3, x + 2 * size / 3, y + size / 3), color, palette.INK)
        draw.text((x + size, y), text, palette.INK, plain, anchor="lm")
        x += plain.getlength(text) + 2.5 * size
    return np.ascontiguousarray(np.asarray(canvas)[:, :, ::-1])
