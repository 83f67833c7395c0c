"""What fitted matrices are worth on photographs that the fit did not see."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kd_cv.evaluate.candidates import KD
from kd_cv.evaluate.images import NothingToMatch, image_matching
from kd_cv.evaluate.readers import warped_images
from kd_cv.evaluate.scores import Progress, Score
from kd_cv.feature2d import KDDescriptor
from kd_cv.fit.photographs import read_reduced
from kd_cv.whitening.registry import DEFAULT_WEIGHTS

MAX_PHOTOS = 10  # that are tested on
TEST_VIEWS = 4  # of each photograph, itself among them


class Labelled(KD):
    """KD with a name of its own in the table."""

    @property
    def name(self) -> str:
        return self.label

    @property
    def variant(self) -> str | None:
        """Its whitening; None if it is raw."""
        return self.kd.settings.whitening


def before_and_after(
    weights: str | os.PathLike[str], variants: Sequence[str], patch_size: int, magnification: float
) -> list[Labelled]:
    """The raw descriptor, the shipped default, and the fitted matrices in their variants."""
    settings: dict[str, Any] = {"patch_size": patch_size, "magnification": magnification}
    shipped = KDDescriptor(weights=DEFAULT_WEIGHTS, **settings)
    return [
        Labelled(KDDescriptor(whitening=None, **settings), "raw"),
        Labelled(shipped, f"shipped {shipped.settings.variant} ({DEFAULT_WEIGHTS})"),
        *(
            Labelled(
                KDDescriptor(whitening=variant, weights=weights, **settings), f"mine {variant}"
            )
            for variant in variants
        ),
    ]


def best_variant(candidates: Sequence[Labelled], scores: Sequence[Score]) -> str | None:
    """Of the fitted candidates the variant with the highest AP; the last one without scores."""
    ap = {score.name: score.values["ap"] for score in scores}
    mine = [candidate for candidate in candidates if candidate.name.startswith("mine")]
    return max(reversed(mine), key=lambda candidate: ap.get(candidate.name, 0.0)).variant


def held_out_scores(
    paths: Sequence[Path], candidates: Sequence[KD], progress: Progress | None = None
) -> tuple[list[Score], int]:
    """Scores of image matching on warps of the first photographs that can be read, and how many.

    There are no scores where nothing can be matched.
    """
    read = [(path.name, read_reduced(path)) for path in paths[:MAX_PHOTOS]]
    photos = [(name, gray) for name, gray in read if gray is not None]
    try:
        warps = warped_images(photos, TEST_VIEWS, seed=1)
        return image_matching(warps, candidates, progress=progress), len(photos)
    except NothingToMatch:
        return [], len(photos)
