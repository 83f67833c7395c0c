"""Average precision of fitted matrices on photographs that the fit did not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from kd_cv.extractor import Extractor
from kd_cv.fit.photographs import read_reduced
from kd_cv.fit.warps import detect_dog, random_warps
from kd_cv.matching.metrics import match_precision
from kd_cv.settings import Settings

MAX_PHOTOS = 10  # that are tested on
MAX_KEYPOINTS = 1000  # of each view
TEST_VIEWS = 4  # of each photograph, itself among them


def held_out_precision(
    paths: Sequence[Path],
    compared: Mapping[str, Settings],
    progress: Callable[[str], None] | None = None,
) -> tuple[dict[str, float], int]:
    """Measure the mean average precision (%) of matches between photographs and random warps.

    All settings describe the same keypoints. Returns also the number of photographs; no precisions
    if none has keypoints.
    """
    precisions: dict[str, list[float]] = {name: [] for name in compared}
    tested = 0
    for number, path in enumerate(paths[:MAX_PHOTOS]):
        gray = read_reduced(path)
        if gray is None:
            continue
        tested += 1
        images, H_1tok = random_warps(gray, TEST_VIEWS, np.random.default_rng([1, number]))
        frames = [detect_dog(image, MAX_KEYPOINTS) for image in images]
        for name, settings in compared.items():
            describe = Extractor(settings).describe
            first, *others = (
                (seen[:, :2], describe(image, seen).astype(np.float32, copy=False))
                for image, seen in zip(images, frames, strict=True)
            )
            found = [match_precision(first, o, H) for o, H in zip(others, H_1tok[1:], strict=True)]
            precisions[name] += [100 * value for value in found if value is not None]
        if progress:
            progress(path.name)
    return {name: float(np.mean(values)) for name, values in precisions.items() if values}, tested
