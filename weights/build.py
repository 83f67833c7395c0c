"""Makes the shipped matrices from the data sets, and the registry that describes them.

    python weights/build.py DATA WORKSPACE [NAMES ...]

DATA holds `multiview/<scene>/*.jpg`, `hpatches_sequences/<sequence>/`, `hpatches_more/<sequence>/`
and `liberty/`, `liberty_unlabelled/` in their public layouts. WORKSPACE keeps the reconstructions
and the scenes, so that a second run is quick. The registry also gets the figures of `kd-cv eval`,
on the data that a name was not fitted on.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np

from kd_cv.descriptor.engine import describe_patches
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.evaluate.candidates import PATCH_SIZE_OF_SETS, make_candidates
from kd_cv.evaluate.images import ImageSet, image_matching
from kd_cv.evaluate.patch_sets import PatchSet, read_phototourism
from kd_cv.evaluate.patches import phototourism
from kd_cv.evaluate.readers import find_sequences
from kd_cv.fit.builders import hpatches_scene, sfm_scene
from kd_cv.fit.folder import part
from kd_cv.fit.matrices import describe_scene, fit_whitening
from kd_cv.fit.samples import Samples
from kd_cv.fit.scenes import Scene
from kd_cv.io.files import replacing
from kd_cv.settings import Settings
from kd_cv.whitening.files import save
from kd_cv.whitening.registry import INDEX, Entry, file_sha256
from kd_cv.whitening.statistics import Statistics, balanced
from kd_cv.whitening.trained import Sample
from kd_cv.whitening.whitening import Whitening

HERE = Path(__file__).resolve().parent
PATCH_SIZES = (32, 64)
MAX_DIM = 128

# What the samples of a fit see, in keypoint sizes. At 32 pixels it is the default magnification,
# best for matching images; at 64 it is the window of the Phototourism patches, best for those.
MAGNIFICATIONS = {32: 15.0, 64: 8.0}

# Scenes of which too few photographs can be reconstructed, or that hold several places.
LEFT_OUT = {"nlesc_rock", "odm_seneca", "superglue_phototourism"}


def multiview(data: Path, workspace: Path) -> tuple[str, Iterator[Scene]]:
    folders = [f for f in sorted((data / "multiview").iterdir()) if f.name not in LEFT_OUT]
    text = (
        f"{len(folders)} scenes reconstructed from photographs: SIFT keypoints detected in every "
        "view, paired by the geometry of the reconstruction and not by their descriptors; each "
        "scene counts the same"
    )
    return text, (
        sfm_scene(f, workspace / f.name, detectors=("sift",), progress=True) for f in folders
    )


def hpatches(data: Path, workspace: Path) -> tuple[str, Iterator[Scene]]:
    parts = [data / name for name in ("hpatches_sequences", "hpatches_more")]
    folders = sorted((f for part in parts for f in part.iterdir()), key=lambda f: f.name)
    text = (
        f"a part of HPatches, {len(folders)} of its 116 image sequences "
        f"({', '.join(f.name for f in folders)}): SIFT keypoints detected in both images and "
        "paired by the homography, and DoG, Hessian and Harris regions reprojected with easy "
        "jitter; each sequence counts the same"
    )
    kinds = {
        "detected": {"frames": "detected", "detectors": ("sift",), "jitter": None},
        "easy": {"jitter": "easy"},
    }

    def scene(folder: Path, kind: str) -> Scene:
        file = workspace / "hpatches" / f"{folder.name}.{kind}.npz"
        if file.is_file():
            return Scene.load(file, folder)
        built = hpatches_scene(folder, **kinds[kind])
        file.parent.mkdir(parents=True, exist_ok=True)
        built.save(file, folder)
        return built

    return text, (scene(folder, kind) for folder in folders for kind in kinds)


def of_scenes(text: str, scenes: Iterator[Scene]) -> tuple[dict, dict]:
    """Matrices of all sizes and kernels, and what the registry says of them."""
    specs = [Spec(P, kernel) for P in PATCH_SIZES for kernel in KERNELS]
    parts: dict[Spec, list[Statistics]] = {spec: [] for spec in specs}
    samples: dict[Spec, list[Sample]] = {spec: [] for spec in specs}
    names = []
    for scene in scenes:
        names.append(scene.name)
        for P in PATCH_SIZES:
            raw = Settings(P, whitening=None, magnification=MAGNIFICATIONS[P])
            described = describe_scene(scene, raw.rows)
            sample = Samples.of(described.X, described.points)
            for spec in (spec for spec in specs if spec.patch_size == P):
                X = part(described.X, raw.spec, spec.kernel)
                parts[spec].append(Statistics(spec.dim).update(X, described.pairs))
                samples[spec].append(Sample(part(sample.X, raw.spec, spec.kernel), sample.points))
        print(f"  {scene.name}: {parts[specs[0]][-1]}", flush=True)
    whitenings = {}
    for spec in specs:
        print(f"  training {spec.kernel} {spec.patch_size}", flush=True)
        whitenings[spec.kernel, spec.patch_size] = fit_whitening(
            balanced(parts[spec]),
            {"fitted_on": text, "magnification": MAGNIFICATIONS[spec.patch_size]},
            max_dim=min(MAX_DIM, spec.dim),
            samples=samples[spec],
        )
    first = parts[specs[0]]
    counts = {
        "patches": sum(s.count for s in first),
        "pairs": sum(s.pair_count for s in first),
        "scenes": len(set(names)),
    }
    return whitenings, {"fitted_on": text, **counts}


def liberty(data: Path) -> tuple[dict, dict]:
    labelled = read_phototourism(data / "liberty")
    unlabelled = read_phototourism(data / "liberty_unlabelled")
    pairs = labelled.matching_pairs()
    text = (
        f"a part of Phototourism's Liberty: {len(labelled)} labelled patches "
        f"({len(pairs)} matching pairs) and {len(unlabelled)} without labels"
    )
    whitenings: dict[tuple[str, int], Whitening] = {}
    for P in PATCH_SIZES:
        for kernel in KERNELS:
            spec = Spec(P, kernel)
            statistics = Statistics(spec.dim)
            statistics.update(describe_patches(resized(labelled, P), spec), pairs)
            rest = describe_patches(resized(unlabelled, P), spec)
            statistics.update(rest[rest.any(axis=1)])
            whitenings[kernel, P] = fit_whitening(
                statistics, {"fitted_on": text}, max_dim=min(MAX_DIM, spec.dim)
            )
    counts = {"patches": len(labelled) + len(unlabelled), "pairs": len(pairs), "scenes": 1}
    return whitenings, {"fitted_on": text, **counts}


def resized(patches: PatchSet, P: int) -> np.ndarray:
    """(N, P, P) uint8, by area."""
    if patches.patches.shape[1] == P:
        return patches.patches
    return np.stack([cv2.resize(p, (P, P), interpolation=cv2.INTER_AREA) for p in patches.patches])


def measured(data: Path, name: str) -> dict[str, float]:
    """FPR95 on Liberty at 64 pixels, AP of image matching at 32; not on a name's own data."""
    variants = ("wua", "wus", "ws") if name == "liberty" else ("wua", "wus", "ws", "wm")
    figures = {}
    if name != "liberty":
        candidates = make_candidates(
            ["kd"], weights=[name], whitening=variants, patch_size=PATCH_SIZE_OF_SETS
        )
        scores = phototourism(read_phototourism(data / "liberty"), candidates)
        for variant, score in zip(variants, scores, strict=True):
            figures[f"liberty_fpr95_{variant}"] = round(score.values["fpr95"], 2)
    if name != "hpatches":
        sets = [
            ImageSet(sequence.name, sequence.images, sequence.H_1tok)
            for sequence in find_sequences(data / "hpatches_sequences")
        ]
        candidates = make_candidates(["kd"], weights=[name], whitening=variants)
        for variant, score in zip(variants, image_matching(sets, candidates), strict=True):
            figures[f"hpatches_sequences_ap_{variant}"] = round(score.values["ap"], 2)
    return figures


def main(data: Path, workspace: Path, names: list[str]) -> None:
    makers = {
        "multiview": lambda: of_scenes(*multiview(data, workspace)),
        "hpatches": lambda: of_scenes(*hpatches(data, workspace)),
        "liberty": lambda: liberty(data),
    }
    index_path = HERE / INDEX
    index = json.loads(index_path.read_text()) if index_path.exists() else {}
    for name in names or list(makers):
        print(name, flush=True)
        whitenings, entry = makers[name]()
        file = f"{name}.npz"
        save(HERE / file, whitenings)
        index[name] = asdict(
            Entry(
                file=file,
                sha256=file_sha256(HERE / file),
                command=f"python weights/build.py DATA WORKSPACE {name}",
                **entry,
            )
        )
        write(index, list(makers))
        index[name]["figures"] = measured(data, name)
        write(index, list(makers))


def write(index: dict, order: list[str]) -> None:
    with replacing(HERE / INDEX) as temporary:
        ordered = {name: index[name] for name in order if name in index}
        temporary.write_text(json.dumps(ordered, indent=2) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
