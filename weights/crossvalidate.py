"""Which scenes and which whitening are best on sequences that a fit did not see.

    python weights/crossvalidate.py DATA WORKSPACE

The HPatches sequences are dealt into three folds. What is fitted for a fold sees none of its
sequences: `hpatches` the other two, `multiview` the 3-D scenes, `mixture` both. Printed is the
average precision at 1,000 SIFT keypoints, a mean over the 21 sequences, at one scale and at three,
for W_S and W_M of 128 dimensions, and the gain over W_S of `multiview` with its interval over the
sequences. "at one scale" are matrices for images that are used with three scales all the same.
DATA and WORKSPACE are those of build.py.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np
from scenes import USES, Described, described, fitted, hpatches, multiview

from kd_cv.evaluate.candidates import KD
from kd_cv.evaluate.images import ImageSet, image_matching
from kd_cv.evaluate.intervals import PairTable, summaries
from kd_cv.evaluate.readers import find_sequences
from kd_cv.feature2d import KDDescriptor
from kd_cv.io.files import replacing
from kd_cv.whitening.whitening import Whitening

FOLDS = 3
BASE = "multiview ws"  # what the others are compared with
Scores = dict[str, dict[str, dict[str, float]]]  # use -> candidate -> sequence -> AP


class Named(KD):
    """KD with a name of its own."""

    @property
    def name(self) -> str:
        return self.label


def candidates(name: str, whitening: Whitening, use: str) -> list[Named]:
    """W_S and W_M of a fit, as they are used."""
    settings = USES[use]
    return [
        Named(
            KDDescriptor(
                patch_size=settings.patch_size, magnification=settings.magnification,
                scales=settings.scales, whitening=variant, weights=whitening,
            ),
            f"{name} {variant}",
        )
        for variant in ("ws", "wm")
    ]  # fmt: skip


def scores_of_fold(data: Path, workspace: Path, fold: int) -> Scores:
    """Average precision on the sequences of a fold."""
    sets = {
        s.name: ImageSet(s.name, s.images, s.H_1tok)
        for part in ("hpatches_sequences", "hpatches_more")
        for s in find_sequences(data / part)
    }
    test = sorted(sets)[fold::FOLDS]

    def scenes(use: str) -> tuple[list[Described], list[Described]]:
        spatial, planar = multiview(data, workspace), hpatches(data, workspace)
        seen = [source for source in planar if source.name not in test]
        return tuple(  # type: ignore[return-value]
            [described(source, use, ("concat",), workspace) for source in part]
            for part in (spatial, seen)
        )

    spatial, planar = scenes("images")
    images = {
        "multiview": fitted(spatial, "images"),
        "hpatches": fitted(planar, "images"),
        "mixture": fitted([*spatial, *planar], "images"),
    }
    spatial, planar = scenes("scales")
    scales = {
        "multiview": fitted(spatial, "scales"),
        "hpatches": fitted(planar, "scales"),
        "mixture": fitted([*spatial, *planar], "scales"),
        "mixture at one scale": images["mixture"],
    }
    found: Scores = {}
    for use, fits in (("images", images), ("scales", scales)):
        shown = [c for name, fit in fits.items() for c in candidates(name, fit, use)]
        for name in test:
            for score in image_matching([sets[name]], shown, seeds=1):
                found.setdefault(use, {}).setdefault(score.name, {})[name] = score.values["ap"]
    return found


def file_of(workspace: Path) -> Path:
    """Where the average precisions are kept, by use, candidate and sequence."""
    return workspace / "crossvalidated.json"


def stored(data: Path, workspace: Path) -> Scores:
    """Average precisions; measured if they were not yet."""
    file = file_of(workspace)
    if not file.is_file():
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with ProcessPoolExecutor(FOLDS) as pool:
            folds = list(pool.map(scores_of_fold, repeat(data), repeat(workspace), range(FOLDS)))
        merged: Scores = {}
        for found in folds:
            for use, by_candidate in found.items():
                for candidate, values in by_candidate.items():
                    merged.setdefault(use, {}).setdefault(candidate, {}).update(values)
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(merged, indent=2))
    return json.loads(file.read_text())


def main(data: Path, workspace: Path) -> None:
    for use, by_candidate in stored(data, workspace).items():
        names = sorted(by_candidate[BASE])
        tables = {candidate: PairTable() for candidate in by_candidate}
        for candidate, values in by_candidate.items():
            for name in names:
                tables[candidate].add([0.0], ap=values[name])
        print(f"\n{use}: {len(names)} sequences, each left out of what it is measured with")
        for candidate, values in summaries(tables, (), against=BASE).items():
            own = by_candidate[candidate]
            light, view = (np.mean([own[n] for n in names if n[0] == k]) for k in "iv")
            gain = ""
            if "ap gain" in values:
                better = sum(own[n] > by_candidate[BASE][n] for n in names)
                gain = "{:+.2f} ({:+.2f}..{:+.2f}), better on {}".format(
                    *(values[f"ap gain{end}"] for end in ("", " low", " high")), better
                )
            print(f"{candidate:23} {values['ap']:.2f}  light {light:.2f}  view {view:.2f}  {gain}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
