"""The scenes that shipped matrices are fitted on, and their descriptors.

A workspace keeps reconstructions and descriptors, so that a second run is quick. Delete it
to build everything anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from experiments.scenes.builders import exact_scene, hpatches_scene, sfm_scene
from experiments.scenes.detectors import Detector
from experiments.scenes.jitter import REGION, JitterLevel
from experiments.scenes.sequences import read_sequence
from kd_cv.descriptor.spec import Spec
from kd_cv.extractor import Extractor
from kd_cv.fit.scenes import Samples, Scene, describe_scene, kernel_part
from kd_cv.io.files import replacing
from kd_cv.settings import Settings
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample
from kd_cv.whitening.whitening import Whitening

MAX_DIM = 128
DETECTORS: tuple[Detector, ...] = ("sift", "dog")  # whose keypoints images are described at
MAX_KEYPOINTS = 2000  # of a photograph

# What matrices are used for: samples a side, patch in keypoint sizes, patch sizes averaged over.
USES = {
    "images": Settings(32, whitening=None, magnification=15.0),
    "scales": Settings(32, whitening=None, magnification=15.0, scales=3),  # type: ignore[arg-type]
    "patches": Settings(64, whitening=None, magnification=8.0),  # about those of Phototourism
}
#: Patches as in HPatches: its measurement region, and the jitter of its hard patches.
JITTER: JitterLevel = "hard"
JITTERED = tuple(Settings(P, whitening=None, magnification=REGION) for P in (32, 64))

# Scenes of which too few photographs can be reconstructed, that hold several places, or that show
# single objects on many photographs, whose reconstructions take longer than all others together.
UNFIT = {"nlesc_rock", "odm_seneca", "superglue_phototourism"}
UNFIT |= {"conch", "flowerpot", "ngp_fox", "nineveh_panel17"}
# Scenes with known cameras, which poses are measured on.
MEASURED_ON = {"strecha_castle-P30", "strecha_entry-P10", "strecha_fountain-P11"}


@dataclass(frozen=True)
class Source:
    """A scene that can be built: where it comes from, its name, and the kind of its frames."""

    family: str  # "multiview" or "hpatches"
    name: str
    kind: str  # a detector, or "exact"
    build: Callable[[], Scene]


def multiview(data: Path, workspace: Path) -> list[Source]:
    """3-D scenes: keypoints detected in every view, paired by the reconstruction."""

    def source(folder: Path, kind: Detector) -> Source:
        def build() -> Scene:
            return sfm_scene(
                folder, workspace / folder.name, detectors=(kind,), max_keypoints=MAX_KEYPOINTS
            )

        return Source("multiview", folder.name, kind, cache(build))

    folders = sorted((data / "multiview").iterdir())
    chosen = [folder for folder in folders if folder.name not in UNFIT | MEASURED_ON]
    return [source(folder, kind) for folder in chosen for kind in DETECTORS]


def hpatches(data: Path) -> list[Source]:
    """Planar scenes: keypoints detected in every image, paired by the homography."""

    def source(folder: Path, kind: Detector) -> Source:
        def build() -> Scene:
            return hpatches_scene(folder, (kind,), max_keypoints=MAX_KEYPOINTS)

        return Source("hpatches", folder.name, kind, cache(build))

    return [source(folder, kind) for folder in sequences_of(data) for kind in DETECTORS]


def jittered(folders: Sequence[Path]) -> list[Source]:
    """Planar scenes as in HPatches: keypoints of image 1 with jitter, carried by the homography."""

    def source(folder: Path) -> Source:
        def build() -> Scene:
            detectors: tuple[Detector, ...] = ("dog", "hessian", "harris")
            return exact_scene(
                read_sequence(folder), JITTER, detectors, max_keypoints=1500, max_frames=4000
            )

        return Source("hpatches", folder.name, "exact", cache(build))

    return [source(folder) for folder in folders]


def sequences_of(data: Path, *parts: str) -> list[Path]:
    """The folders of the image sequences; of some parts of the data only."""
    parts = parts or ("hpatches_sequences", "hpatches_more")
    return sorted((f for part in parts for f in (data / part).iterdir()), key=lambda f: f.name)


@dataclass(frozen=True)
class SourceStatistics:
    """Of one scene, raw descriptors of the concatenation: their statistics and a sample."""

    source: Source
    statistics: dict[str, Statistics]  # by kernel
    sample: Sample


def described(
    source: Source, settings: Settings, kernels: Sequence[str], workspace: Path
) -> SourceStatistics:
    """The descriptors of a scene as they are used, kept in the workspace."""
    folder = workspace / "described" / settings.fingerprint[:8]
    stem = f"{source.family}.{source.name}.{source.kind}"
    files = {kernel: folder / f"{stem}.{kernel}.npz" for kernel in kernels}
    sampled = folder / f"{stem}.sample.npz"
    if not sampled.is_file() or not all(file.is_file() for file in files.values()):
        folder.mkdir(parents=True, exist_ok=True)
        X, pairs, points = describe_scene(source.build(), Extractor(settings).describe)
        for kernel, file in files.items():
            rows = kernel_part(X, settings.spec, kernel)
            Statistics(rows.shape[1]).update(rows, pairs).save(file)
        sample = Samples.of(X, points)
        with replacing(sampled) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, X=sample.X, points=sample.points)
    with np.load(sampled) as arrays:
        sample = Sample(arrays["X"], arrays["points"])
    return SourceStatistics(source, {k: Statistics.load(file) for k, file in files.items()}, sample)


def fitted(
    scenes: Sequence[SourceStatistics],
    use: str,
    settings: Settings,
    kernel: str = "concat",
    text: str = "",
    *,
    trained: bool = True,
) -> Whitening:
    """All variants, each scene counting the same; W_M of the concatenation only, if `trained`."""
    spec = Spec(settings.patch_size, kernel)
    return Whitening.fit(
        balanced([scene.statistics[kernel] for scene in scenes]),
        provenance={
            "fitted_on": text,
            "used_for": use,
            "magnification": settings.side,
            "scales": list(settings.scales),
        },
        max_dim=min(MAX_DIM, spec.dim),
        samples=[scene.sample for scene in scenes] if trained and kernel == "concat" else (),
    )


def balanced(statistics: Sequence[Statistics]) -> Statistics:
    """Statistics in which each of the given ones counts the same, however many descriptors it saw.

    The total counts are kept, up to rounding.
    """
    if not statistics:
        raise ValueError("no statistics were given to balance")
    count, pair_count = (
        sum(getattr(s, name) for s in statistics) // len(statistics)
        for name in ("count", "pair_count")
    )
    result = Statistics(statistics[0].dim)
    for s in statistics:
        result._combine(count, s.mean, s.C * count)
        if pair_count:
            result._pair_scatter = result._pair_scatter + s.C_M * pair_count
            result.pair_count += pair_count
    return result
