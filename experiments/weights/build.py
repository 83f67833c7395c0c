"""Makes the shipped matrices from the data sets, and the registry that describes them.

    python -m experiments weights DATA WORKSPACE [NAMES ...]

DATA holds `multiview/<scene>/*.jpg`, `hpatches_sequences/<sequence>/`, `hpatches_more/<sequence>/`
and `liberty/`, `liberty_unlabelled/` in their public layouts. WORKSPACE keeps what takes long (see
sources.py). The registry also gets figures measured on data that a name was not fitted on.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from experiments.protocols.candidates import make_candidates
from experiments.protocols.hpatches import hpatches as hpatches_tasks
from experiments.protocols.matching import image_matching
from experiments.protocols.patch_sets import PatchSet, read_phototourism
from experiments.protocols.readers import read_images
from experiments.protocols.strips import strips_of_sequence
from experiments.protocols.verification import pairs_of_set, patch_verification
from experiments.weights.sources import (
    JITTER,
    JITTERED,
    MAX_DIM,
    USES,
    described,
    fitted,
    hpatches,
    jittered,
    multiview,
    sequences_of,
)
from kd_cv.descriptor.describer import describe_patches
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.io.files import replacing
from kd_cv.whitening.files import Key, load, save
from kd_cv.whitening.registry import INDEX, Entry, file_sha256
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample, moved_mean, train
from kd_cv.whitening.whitening import Whitening

HERE = Path(__file__).resolve().parents[2] / "weights"
MEASURED = ("hpatches_sequences", "hpatches_more")  # AP of image matching

# What the entries of a name are for, and the kernels of each. Several scales are used with the
# concatenation alone, and so is what is trained.
ENTRIES: dict[str, dict[str, tuple[str, ...]]] = {
    "multiview": {"images": KERNELS, "scales": ("concat",)},
    "hpatches": {"images": KERNELS},
}

# W_M for patches goes a part of the way from W_S only. All of it is better at exact pairs of scenes
# left out, but worse where frames are rough; this much is better at the one, as good at the other.
KEY_OF_PATCHES = ("concat", 64, "patches")
TRAINED_FOR_PATCHES = {"multiview": 0.3}

VARIANTS_CLOSED = ("wua", "wus", "ws")
FAMILIES = ("multiview", "hpatches")
TEXTS = {
    "multiview": "{} scenes reconstructed from photographs: our detector's and SIFT's keypoints "
    "detected in every view, paired by the geometry of the reconstruction and not by their "
    "descriptors; each scene counts the same",
    "hpatches": "a part of HPatches, {} of its 116 image sequences ({}): our detector's and SIFT's "
    "keypoints detected in every image, paired by the homography; each sequence counts the same",
}


def key_of(use: str, kernel: str, P: int) -> Key:
    """Of images at one scale, matrices are also for whatever has none of its own."""
    return (kernel, P) if use == "images" else (kernel, P, use)


def of_scenes(name: str, data: Path, workspace: Path) -> tuple[dict, dict]:
    """Matrices of all uses and kernels, and what the registry says of them."""
    sources = multiview(data, workspace) if name == "multiview" else hpatches(data)
    names = sorted({source.name for source in sources})
    text = TEXTS[name].format(len(names), ", ".join(names))
    whitenings: dict[Key, Whitening] = {}
    for use, kernels in ENTRIES[name].items():
        settings = USES[use]
        scenes = [described(source, settings, kernels, workspace) for source in sources]
        if use == "images":
            statistics = [scene.statistics["concat"] for scene in scenes]
        for kernel in kernels:
            print(f"  {use} {kernel}, {len(scenes)} scenes", flush=True)
            key = key_of(use, kernel, settings.patch_size)
            whitenings[key] = fitted(scenes, use, settings, kernel, text)
    counts = {
        "patches": sum(s.count for s in statistics),
        "pairs": sum(s.pair_count for s in statistics),
        "scenes": len(names),
    }
    if name == "hpatches":
        patches = of_jittered(sequences_of(data), workspace)
    else:
        patches = of_patches(HERE / f"{name}.npz")
    if name in TRAINED_FOR_PATCHES:
        samples = [described(source, USES["patches"], (), workspace).sample for source in sources]
        fraction = TRAINED_FOR_PATCHES[name]
        patches[KEY_OF_PATCHES] = trained(patches[KEY_OF_PATCHES], samples, fraction, text)
    return whitenings | patches, {"fitted_on": text, **counts}


def of_jittered(folders: Sequence[Path], workspace: Path) -> dict[Key, Whitening]:
    """Matrices for ready-made patches, fitted on patches with the jitter of HPatches."""
    sources, whitenings = jittered(folders), {}
    text = (
        f"{len(folders)} image sequences of HPatches: keypoints of the first image with the jitter "
        f"of the {JITTER} patches, carried into the others by the homography"
    )
    for settings in JITTERED:
        scenes = [described(source, settings, KERNELS, workspace) for source in sources]
        for kernel in KERNELS:
            key = key_of("patches", kernel, settings.patch_size)
            whitenings[key] = fitted(scenes, "patches", settings, kernel, text, trained=False)
    return whitenings


def uses_of(whitenings: dict[Key, Whitening]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for kernel, P, *use in sorted(whitenings, key=str):
        found.setdefault(use[0] if use else "all other uses", []).append(f"{kernel} {P}")
    return {use: ", ".join(keys) for use, keys in found.items()}


def of_patches(file: Path) -> dict[Key, Whitening]:
    """The matrices for ready-made patches that the shipped file of `multiview` has.

    They were fitted with 64 samples at magnification 8, about that of the Phototourism
    patches, and are carried over from build to build; each says in its provenance on what.
    """
    return {
        (key[0], key[1], "patches"): whitening
        for key, whitening in load(file).items()
        if key[1] == 64
    }


def trained(whitening: Whitening, samples: list[Sample], fraction: float, text: str) -> Whitening:
    """Add W_M, trained from W_S: `fraction` of the way between the two."""
    assert whitening.A_s is not None
    mu, A_s = whitening.mu.astype(np.float64), whitening.A_s.astype(np.float64)
    mu_m, A_m = train(samples, mu, A_s, whitening.max_dim)
    c = A_m.T @ (mu_m - mu)
    A_m = A_s + fraction * (A_m - A_s)
    mu_m = moved_mean(mu, A_m, fraction * c)
    on = {"scenes": len(samples), "patches": sum(len(sample.X) for sample in samples)}
    return replace(
        whitening,
        A_m=A_m.astype(np.float32),
        mu_m=mu_m.astype(np.float32),
        provenance={
            **whitening.provenance,
            "trained_on": {**on, "share": fraction, "text": text},
        },
    )


def liberty(data: Path) -> tuple[dict, dict]:
    """Matrices of Liberty's patches, and their entry of the registry."""
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
            whitenings[kernel, P] = Whitening.fit(
                statistics, provenance={"fitted_on": text}, max_dim=min(MAX_DIM, spec.dim)
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

    Of the matrices for HPatches' patches: mAP of its three tasks on six sequences, fitted on the
    others.
    """
    closed = VARIANTS_CLOSED
    figures = {}
    if name != "liberty":
        variants = (*closed, "wm") if name in TRAINED_FOR_PATCHES else closed
        candidates = make_candidates(["kd"], weights=[name], whitening=variants)
        scores = patch_verification(pairs_of_set(read_phototourism(data / "liberty")), candidates)
        for variant, score in zip(variants, scores, strict=True):
            figures[f"liberty_fpr95_{variant}"] = round(score.values["fpr95"], 2)
    if name != "hpatches":
        variants = closed if name == "liberty" else (*closed, "wm")
        for part in MEASURED:
            sets = read_images(data / part)
            candidates = make_candidates(["kd"], weights=[name], whitening=variants)
            for variant, score in zip(variants, image_matching(sets, candidates), strict=True):
                figures[f"{part}_ap_{variant}"] = round(score.values["ap"], 2)
    else:
        figures |= left_out(data, workspace)
    return figures


def left_out(data: Path, workspace: Path) -> dict[str, float]:
    """mAP of HPatches' tasks on six sequences, with matrices of the others; and RootSIFT's."""
    fits = of_jittered(sequences_of(data, "hpatches_more"), workspace)
    candidates = make_candidates(
        ["kd", "rootsift"], weights=[fits[KEY_OF_PATCHES]], whitening=VARIANTS_CLOSED, patch_size=64
    )
    strips = (
        (images.name, strips_of_sequence(images, max_patches=200))
        for images in read_images(data / "hpatches_sequences")
    )
    return {
        f"left_out_{task}_{score.kind.rpartition('+')[2]}": round(score.values[task], 1)
        for score in hpatches_tasks(strips, candidates)
        for task in ("verification", "matching", "retrieval")
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m experiments weights",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, help="folder of the data sets")
    parser.add_argument("workspace", type=Path, help="folder that keeps intermediate results")
    parser.add_argument("names", nargs="*", help="multiview, hpatches, liberty; all by default")
    args = parser.parse_args(arguments)
    build(args.data, args.workspace, args.names)


def build(data: Path, workspace: Path, names: list[str]) -> None:
    """Write the matrices of these names, and their entries of the registry."""
    makers = {
        **{name: partial(of_scenes, name, data, workspace) for name in FAMILIES},
        "liberty": partial(liberty, data),
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
                command=f"python -m experiments weights DATA WORKSPACE {name}",
                uses=uses_of(whitenings),
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
