"""Run an experiment: python -m experiments NAME [ARGUMENTS]; NAME --help shows the arguments."""

import importlib
import sys
from collections.abc import Sequence

#: Name -> module and function, and one line of help.
COMMANDS = {
    "matching": ("commands.pairs:matching", "match images with known homographies"),
    "pose": ("commands.pairs:pose", "relative pose of photographs with known cameras"),
    "pipelines": ("commands.pairs:pipelines", "whole pipelines, with their time"),
    "verification": ("commands.patches:verification", "FPR95 on a Phototourism set"),
    "hpatches": ("commands.patches:hpatches", "the three tasks of HPatches"),
    "shrinkage": ("commands.curves:shrinkage", "FPR95 over t of W_UA and beta of W_US"),
    "eigenvalues": ("commands.curves:eigenvalues", "spectrum of the covariance"),
    "robustness": ("commands.curves:robustness", "FPR95 over turns and shifts"),
    "figures": ("commands.figures:figures", "the paper's figures"),
    "weights": ("weights.build:main", "build the shipped matrices"),
    "bench": ("benchmarks.bench:main", "speed and memory beside cv2.SIFT and Kornia"),
    "extract": ("benchmarks.extract:main", "throughput and memory of kd-cv extract"),
    "retrieval": ("benchmarks.retrieval:main", "size and speed of a retrieval index"),
    "colmap": ("benchmarks.colmap:main", "reconstructions with KD, RootSIFT and SIFT"),
    "fit": ("benchmarks.fit:main", "time of a fit"),
    "geometry": ("benchmarks.geometry:main", "how keypoints follow a changed photograph"),
    "lafs": ("benchmarks.lafs:main", "matches through Kornia's LAFs and through keypoints"),
    "devices": ("benchmarks.devices:main", "KDFeature on CUDA, MPS and the CPU"),
    "callers": ("benchmarks.callers:main", "many callers at once: threads, processes, Dask"),
    "soak": ("benchmarks.soak:main", "minutes of calls: equal bits, flat memory"),
    "windows": ("benchmarks.windows:main", "patch sizes for keypoints of other detectors"),
    "views": ("benchmarks.views:main", "plane or scene: which model match chooses"),
    "viewpoints": ("benchmarks.viewpoints:main", "match and KDDescriptor with synthetic views"),
    "estimators": ("benchmarks.estimators:main", "robust estimators side by side"),
    "settings": ("benchmarks.settings:main", "settings of the detector, by leaving sequences out"),
}


def main(arguments: Sequence[str]) -> int:
    """Run the experiment; the exit code: 2 for bad input."""
    name, *rest = arguments or ["--help"]
    if name not in COMMANDS:
        listed = "\n".join(f"  {name:13} {text}" for name, (_, text) in COMMANDS.items())
        print(f"{__doc__}\n\n{listed}")
        return 0 if name in ("-h", "--help") else 2
    module, function = COMMANDS[name][0].split(":")
    try:
        run = getattr(importlib.import_module(f"experiments.{module}"), function)
        return run(rest) or 0
    except (ValueError, OSError, ImportError) as error:
        print(f"python -m experiments {name}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
