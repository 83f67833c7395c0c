"""`kd-cv fit`: matrices from a folder of photographs, and what they are worth on held-out ones."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kd_cv.cli.outputs import check_writable
from kd_cv.cli.tables import plain_warnings, print_table, telling
from kd_cv.evaluate.candidates import KD
from kd_cv.evaluate.images import Gray, NothingToMatch, image_matching
from kd_cv.evaluate.readers import warped_images
from kd_cv.evaluate.scores import Progress, Score
from kd_cv.feature2d import KDDescriptor
from kd_cv.fit.matrices import PairSource, fit_photos, read_reduced, split_photos
from kd_cv.io.images import list_photos
from kd_cv.whitening import registry as shipped
from kd_cv.whitening import save
from kd_cv.whitening.registry import DEFAULT_WEIGHTS

MAX_HELD_OUT = 10  # photographs of the table
TEST_VIEWS = 4  # of each, itself among them


def fit_command(
    photos: Path,
    output: Path,
    pairs: PairSource,
    patch_sizes: Sequence[int],
    magnification: float,
    views: int,
    max_keypoints: int,
    workspace: Path | None,
    scheduler: str | None,
    workers: int | None,
    as_json: bool,
) -> int:
    """Run `kd-cv fit`; the exit code."""
    if output.suffix != ".npz":
        raise ValueError(f"{output}: the name of the file of matrices must end in .npz")
    check_writable(output)
    training, held_out = split_photos(list_photos(photos))
    if scheduler is None and workers is not None:
        raise ValueError(f"--workers is for --scheduler local, got {workers} without it")
    running = nullcontext(map) if scheduler is None else _on_cluster(scheduler, workers)
    with plain_warnings(), telling("Fitting", as_json) as tell, running as run:
        entries = fit_photos(
            [path.absolute() for path in training], pairs, patch_sizes=patch_sizes,
            magnification=magnification, views=views, max_keypoints=max_keypoints,
            workspace=workspace and workspace.absolute(), progress=tell, run=run,
        )  # fmt: skip
        save(output, entries)
    with plain_warnings(), telling("Testing", as_json) as tell:
        candidates = before_and_after(output, pairs, patch_sizes[0], magnification)
        tested = list(_readable(held_out[:MAX_HELD_OUT]))
        scores = _test(tested, candidates, tell)
    fitted = entries["concat", patch_sizes[0]]
    if as_json:
        print(json.dumps(summary(output, fitted.provenance, scores, len(tested))))
        return 0
    _print(scores, len(tested))
    counts = f"{fitted.provenance['patches']:,} descriptors, {fitted.provenance['pairs']:,} pairs"
    print(f"fitted on {counts} of {fitted.provenance['fitted_on']}")
    print(f"matrices: {output.resolve()}")
    print(f'use them: KDDescriptor(weights="{output}", whitening="{candidates[-1].variant}")')
    return 0


@contextmanager
def _on_cluster(scheduler: str, workers: int | None) -> Iterator[Any]:
    from kd_cv.collection.cluster import connected, in_order

    with connected(scheduler, workers) as client:
        yield in_order(client)


class Labelled(KD):
    """KD with a name of its own in the table."""

    @property
    def name(self) -> str:
        return self.label

    @property
    def variant(self) -> str | None:
        return self.kd.settings.whitening


def before_and_after(
    output: Path, pairs: PairSource, patch_size: int, magnification: float
) -> list[Labelled]:
    """The raw descriptor, the shipped default where there is one, and the fitted one, last."""
    settings: dict[str, Any] = {"patch_size": patch_size, "magnification": magnification}
    found = [Labelled(KDDescriptor(whitening=None, **settings), "raw")]
    if DEFAULT_WEIGHTS in shipped.names():
        kd = KDDescriptor(whitening="ws", weights=DEFAULT_WEIGHTS, **settings)
        found.append(Labelled(kd, f"shipped ws ({DEFAULT_WEIGHTS})"))
    for variant in ("wua", "wus") if pairs == "none" else ("wus", "ws"):
        kd = KDDescriptor(whitening=variant, weights=output, **settings)
        found.append(Labelled(kd, f"mine {variant}"))
    return found


def summary(
    output: Path, provenance: Any, scores: Sequence[Score], held_out: int
) -> dict[str, Any]:
    """What --json prints."""
    return {
        "output": str(output.resolve()),
        "provenance": dict(provenance),
        "held_out": held_out,
        "scores": [asdict(score) for score in scores],
    }


def _readable(paths: Sequence[Path]) -> Iterator[tuple[str, Gray]]:
    for path in paths:
        gray = read_reduced(path)
        if gray is not None:
            yield path.name, gray


def _test(
    photos: Sequence[tuple[str, Gray]], candidates: Sequence[Labelled], tell: Progress
) -> list[Score]:
    """Scores on warps of photographs; none where there is nothing to match."""
    try:
        return image_matching(warped_images(photos, TEST_VIEWS, seed=1), candidates, progress=tell)
    except NothingToMatch:
        return []


def _print(scores: Sequence[Score], held_out: int) -> None:
    if not scores:
        print("no photograph with keypoints is left to test on")
        return
    rows = [
        [s.name, *(f"{s.values[key]:.1f}" for key in ("ap", "precision", "auc5"))] for s in scores
    ]
    note = f"in %; held out: {held_out}, each matched to {TEST_VIEWS - 1} random warps of itself\n"
    print_table(["held out", "AP", "precision", "AUC 5 px"], rows, note)
