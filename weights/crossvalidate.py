"""Which scenes and which whitening are best on sequences that a fit did not see.

    python weights/crossvalidate.py DATA WORKSPACE [USES ...]

The HPatches sequences are dealt into three folds. What is fitted for a fold sees none of its
sequences: `hpatches` the other two, `multiview` the 3-D scenes, `mixture` both. Printed is the
average precision at 1,000 SIFT keypoints, a mean over the 21 sequences, for W_S and W_M with 128
and 64 dimensions, and the interval of the gain over W_S of `multiview` on the same pairs.
DATA and WORKSPACE are those of build.py.
"""

import sys
from pathlib import Path

import numpy as np
from scenes import USES, Described, described, fitted, hpatches, multiview

from kd_cv.evaluate.candidates import KD
from kd_cv.evaluate.images import ImageSet, image_matching
from kd_cv.evaluate.intervals import PairTable, summaries
from kd_cv.evaluate.readers import find_sequences
from kd_cv.feature2d import KDDescriptor

FOLDS = 3


class Named(KD):
    """KD with a name of its own."""

    @property
    def name(self) -> str:
        return self.label


def candidates(name: str, scenes: list[Described], use: str) -> list[Named]:
    """W_S and W_M of a fit, with 128 and 64 dimensions."""
    whitening = fitted(scenes, use)
    settings = USES[use]
    return [
        Named(
            KDDescriptor(
                patch_size=settings.patch_size, magnification=settings.magnification,
                scales=settings.scales, whitening=variant, weights=whitening, dim=dim,
            ),
            f"{name} {variant} {dim}",
        )
        for variant in ("ws", "wm")
        for dim in (128, 64)
    ]  # fmt: skip


def main(data: Path, workspace: Path, uses: list[str]) -> None:
    sets = {
        s.name: ImageSet(s.name, s.images, s.H_1tok)
        for part in ("hpatches_sequences", "hpatches_more")
        for s in find_sequences(data / part)
    }
    names = sorted(sets)
    for use in uses:
        spatial, planar = (
            [described(source, use, ("concat",), workspace) for source in sources]
            for sources in (multiview(data, workspace), hpatches(data, workspace))
        )
        fixed = candidates("multiview", spatial, use)
        tables: dict[str, PairTable] = {}
        by_sequence: dict[str, dict[str, float]] = {}
        for fold in range(FOLDS):
            test = names[fold::FOLDS]
            seen = [scene for scene in planar if scene.source.name not in test]
            shown = [
                *fixed,
                *candidates("hpatches", seen, use),
                *candidates("mixture", [*spatial, *seen], use),
            ]
            for name in test:
                for score in image_matching([sets[name]], shown, seeds=1):
                    by_sequence.setdefault(score.name, {})[name] = score.values["ap"]
            print(f"{use}: fold {fold + 1} of {FOLDS} done", file=sys.stderr, flush=True)
        for candidate, values in by_sequence.items():
            tables[candidate] = PairTable()
            for name in names:
                tables[candidate].add([0.0], ap=values[name])
        found = summaries(tables, (), against="multiview ws 128")
        base = by_sequence["multiview ws 128"]
        print(f"\n{use}: {len(names)} sequences, each left out of what it is measured with")
        for candidate, values in found.items():
            own = by_sequence[candidate]
            light, view = (np.mean([own[n] for n in names if n[0] == k]) for k in "iv")
            gain = ""
            if "ap gain" in values:
                better = sum(own[n] > base[n] for n in names)
                gain = "{:+.2f} ({:+.2f}..{:+.2f}), better on {}".format(
                    *(values[f"ap gain{end}"] for end in ("", " low", " high")), better
                )
            print(f"{candidate:18} {values['ap']:.2f}  light {light:.2f}  view {view:.2f}  {gain}")
        sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or ["images", "scales"])
