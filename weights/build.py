"""Makes the shipped matrices from the data sets, and the registry that describes them.

    python weights/build.py DATA WORKSPACE [NAMES ...]

DATA holds `multiview/<scene>/*.jpg`, `hpatches_sequences/<sequence>/`, `hpatches_more/<sequence>/`
and `liberty/`, `liberty_unlabelled/` in their public layouts. WORKSPACE keeps what takes long (see
scenes.py). The registry also gets the figures of `kd-cv eval`, on data that a name was not fitted
on; what that leaves out is in the figures of crossvalidate.py.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
from crossvalidate import stored
from scenes import DETECTORS, MAX_DIM, USES, Source, described, fitted, hpatches, multiview

from kd_cv.descriptor.engine import describe_patches
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.evaluate.candidates import make_candidates
from kd_cv.evaluate.images import ImageSet, image_matching
from kd_cv.evaluate.patch_sets import PatchSet, read_phototourism
from kd_cv.evaluate.patches import phototourism
from kd_cv.evaluate.readers import find_sequences
from kd_cv.fit.matrices import fit_whitening
from kd_cv.io.files import replacing
from kd_cv.whitening.files import Key, save
from kd_cv.whitening.registry import INDEX, Entry, file_sha256
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening

HERE = Path(__file__).resolve().parent
MEASURED = ("hpatches_sequences", "hpatches_more")  # AP of image matching

# The entries of a file: what each is for, and the kernels it is fitted for. Several scales are used
# with the concatenation alone, and so is what is trained.
ENTRIES: dict[str, tuple[str, ...]] = {"images": KERNELS, "scales": ("concat",), "patches": KERNELS}


def key_of(use: str, kernel: str) -> Key:
    """Of images at one scale, matrices are also for whatever has none of its own."""
    P = USES[use].patch_size
    return (kernel, P) if use == "images" else (kernel, P, use)


def of_scenes(text: str, sources: Callable[[str], list[Source]], workspace: Path) -> tuple:
    """Matrices of all uses and kernels, and what the registry says of them."""
    whitenings = {}
    counts = {}
    for use, kernels in ENTRIES.items():
        scenes = [described(source, use, kernels, workspace) for source in sources(use)]
        for kernel in kernels:
            print(f"  {use} {kernel}, {len(scenes)} scenes", flush=True)
            whitenings[key_of(use, kernel)] = fitted(scenes, use, kernel, text)
        if use == "images":
            statistics = [scene.statistics["concat"] for scene in scenes]
            counts = {
                "patches": sum(s.count for s in statistics),
                "pairs": sum(s.pair_count for s in statistics),
                "scenes": len({scene.source.name for scene in scenes}),
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
    for P in (32, 64):
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


def measured(data: Path, workspace: Path, name: str) -> dict[str, float]:
    """FPR95 on Liberty's patches, AP of image matching; never on what was fitted on.

    What is fitted on sequences is measured by cross-validation: a figure of the recipe, of fits
    that have not seen the sequence in question.
    """
    variants = ("wua", "wus", "ws") if name == "liberty" else ("wua", "wus", "ws", "wm")
    figures = {}
    if name != "liberty":
        candidates = make_candidates(["kd"], weights=[name], whitening=variants)
        scores = phototourism(read_phototourism(data / "liberty"), candidates)
        for variant, score in zip(variants, scores, strict=True):
            figures[f"liberty_fpr95_{variant}"] = round(score.values["fpr95"], 2)
    if name in ("multiview", "liberty"):
        for part in MEASURED:
            sets = [ImageSet(s.name, s.images, s.H_1tok) for s in find_sequences(data / part)]
            candidates = make_candidates(["kd"], weights=[name], whitening=variants)
            for variant, score in zip(variants, image_matching(sets, candidates), strict=True):
                figures[f"{part}_ap_{variant}"] = round(score.values["ap"], 2)
    if name != "liberty":
        for use, by_candidate in stored(data, workspace).items():
            for variant in ("ws", "wm"):
                ap = np.mean(list(by_candidate[f"{name} {variant}"].values()))
                figures[f"crossvalidated_{use}_ap_{variant}"] = round(float(ap), 2)
    return figures


def main(data: Path, workspace: Path, names: list[str]) -> None:
    def spatial(use: str) -> list[Source]:
        return multiview(data, workspace)

    def planar(use: str) -> list[Source]:
        # Regions with jitter teach what ready-made patches need, and cost images a little.
        kinds = (*DETECTORS, "easy") if use == "patches" else DETECTORS
        return hpatches(data, workspace, kinds)

    scenes = len(multiview(data, workspace)) // len(DETECTORS)
    sequences = sorted({source.name for source in planar("images")})
    keypoints = "our detector's and SIFT's keypoints detected in every view, paired by"
    text = {
        "multiview": f"{scenes} scenes reconstructed from photographs: {keypoints} the geometry of "
        "the reconstruction and not by their descriptors; each scene counts the same",
        "hpatches": f"a part of HPatches, {len(sequences)} of its 116 image sequences "
        f"({', '.join(sequences)}): {keypoints} the homography, and for patches also regions of "
        "three detectors reprojected with easy jitter; each sequence counts the same",
        "mixture": f"{scenes} scenes reconstructed from photographs and {len(sequences)} image "
        f"sequences of HPatches, those of multiview and hpatches: {keypoints} the geometry; each "
        "scene counts the same",
    }
    makers = {
        "multiview": lambda: of_scenes(text["multiview"], spatial, workspace),
        "hpatches": lambda: of_scenes(text["hpatches"], planar, workspace),
        "mixture": lambda: of_scenes(
            text["mixture"], lambda use: spatial(use) + planar(use), workspace
        ),
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
        index[name]["figures"] = measured(data, workspace, name)
        write(index, list(makers))


def write(index: dict, order: list[str]) -> None:
    with replacing(HERE / INDEX) as temporary:
        ordered = {name: index[name] for name in order if name in index}
        temporary.write_text(json.dumps(ordered, indent=2) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
