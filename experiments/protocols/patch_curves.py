"""The paper's curves: FPR95 over the shrinkage of a whitening, and over a turn or a shift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from experiments.protocols.candidates import Array32, Candidate, Patches
from experiments.protocols.verification import PatchPairs
from kd_cv.whitening.whitening import Whitening

Points = list[tuple[float, float]]  # (x, FPR95)
Curves = dict[str, Points]  # by their labels


def shrinkage_curves(
    labelled: PatchPairs,
    raw: Array32,
    whitening: Whitening,
    ts: Iterable[float],
    beta_indices: Iterable[int],
    dim: int = 128,
) -> Curves:
    """FPR95 over t of W_UA and over i of W_US, beta = lam_i, for raw descriptors (N, D)."""

    def error(variant: str, **setting: Any) -> float:
        return labelled.fpr95(whitening.apply(raw, variant, min(dim, raw.shape[1]), **setting))

    return {
        "wua": [(t, error("wua", t=t)) for t in ts],
        "wus": [(i, error("wus", beta_index=i)) for i in beta_indices],
    }


def robustness_curves(
    labelled: PatchPairs,
    candidates: Mapping[str, Candidate],
    *,
    turns: Sequence[float] = range(0, 31, 5),
    shifts: Sequence[float] = range(0, 13, 2),
) -> tuple[Curves, Curves]:
    """FPR95 when the second patch of each pair is turned by degrees, and when shifted by pixels.

    candidates by label; of each label, the points (turn or shift, FPR95).
    """

    def curve(candidate: Candidate, moves: Sequence[tuple[float, float]]) -> Points:
        still, patches = candidate.of_patches(labelled.patches), labelled.patches
        return [
            (sum(move), labelled.fpr95(still, candidate.of_patches(moved(patches, *move))))
            for move in moves
        ]

    by_turns, by_shifts = [(turn, 0) for turn in turns], [(0, shift) for shift in shifts]
    return (
        {label: curve(candidate, by_turns) for label, candidate in candidates.items()},
        {label: curve(candidate, by_shifts) for label, candidate in candidates.items()},
    )


def moved(patches: Patches, turn: float, shift: float) -> Patches:
    """Patches turned about their centre by degrees and shifted to the right by pixels.

    What comes in from outside repeats the border.
    """
    centre = (patches.shape[1] - 1) / 2
    M = cv2.getRotationMatrix2D((centre, centre), turn, 1.0)
    M[0, 2] += shift
    size, border = patches.shape[1:], cv2.BORDER_REPLICATE
    warped = [cv2.warpAffine(patch, M, size, borderMode=border) for patch in patches]
    return np.array(warped, patches.dtype).reshape(patches.shape)
