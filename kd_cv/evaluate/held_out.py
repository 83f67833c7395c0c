"""What fitted matrices are worth on photographs that the fit did not see."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kd_cv.evaluate.candidates import Candidate, kd_candidate
from kd_cv.evaluate.images import image_matching
from kd_cv.evaluate.pairs import Measure, NothingToMatch
from kd_cv.evaluate.readers import warped_images
from kd_cv.evaluate.scores import Progress, Score
from kd_cv.fit.photographs import read_reduced
from kd_cv.settings import Settings
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING

MAX_PHOTOS = 10  # that are tested on
TEST_VIEWS = 4  # of each photograph, itself among them


def before_and_after(
    weights: str | os.PathLike[str], variants: Sequence[str], patch_size: int, magnification: float
) -> list[Candidate]:
    """The raw descriptor, the shipped default, and the fitted matrices in their variants."""
    raw = Settings(patch_size, whitening=None, magnification=magnification)
    shipped = replace(raw, whitening=DEFAULT_WHITENING)
    settings = {"raw": raw, f"shipped {shipped.variant} ({DEFAULT_WEIGHTS})": shipped}
    for variant in variants:
        settings[f"mine {variant}"] = replace(raw, whitening=variant, weights=weights)
    return [replace(kd_candidate(of_name), name=name) for name, of_name in settings.items()]


def best_variant(variants: Sequence[str], scores: Sequence[Score]) -> str:
    """Of the fitted variants the one with the highest AP; the last one without scores."""
    ap = {score.name: score.values["ap"] for score in scores}
    return max(reversed(variants), key=lambda variant: ap.get(f"mine {variant}", 0.0))


def held_out_scores(
    paths: Sequence[Path], candidates: Sequence[Candidate], progress: Progress | None = None
) -> tuple[list[Score], int]:
    """Scores of image matching on warps of the first photographs that can be read, and how many.

    There are no scores where nothing can be matched.
    """
    read = [(path.name, read_reduced(path)) for path in paths[:MAX_PHOTOS]]
    photos = [(name, gray) for name, gray in read if gray is not None]
    try:
        warps = warped_images(photos, TEST_VIEWS, seed=1)
        return image_matching(warps, candidates, Measure(progress=progress)), len(photos)
    except NothingToMatch:
        return [], len(photos)
