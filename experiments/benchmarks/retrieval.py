"""Memory and time of an index per million descriptors on this machine.

python -m experiments retrieval FOLDER [--descriptors 1000000]

The descriptors of the photographs in FOLDER, and as many again as are wanted by adding noise to
them, are indexed; the queries are noisy copies of descriptors that are in the index.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import faiss
import numpy as np

from kd_cv import KDDescriptor
from kd_cv.collection import Extraction, extract, reading
from kd_cv.collection.retrieval import NEIGHBOURS, PROBES, TRAINED_PER_LIST, list_count

NOISE = 0.05  # per entry of a descriptor of unit norm


def noisy(descriptors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    moved = descriptors + rng.normal(0, NOISE, descriptors.shape).astype(np.float32)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("retrieval", description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--descriptors", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--weights", help="file of matrices for KD instead of the default")
    args = parser.parse_args(arguments)
    kd = KDDescriptor(whitening="ws", weights=args.weights) if args.weights else "kd"
    with tempfile.TemporaryDirectory() as work:
        print(extract(args.folder, Path(work) / "f.h5", Extraction(kd, 4000)))
        with reading(Path(work) / "f.h5") as features:
            real = np.concatenate([features[name].descriptors for name in features])
    rng = np.random.default_rng(0)
    descriptors = np.empty((args.descriptors, real.shape[1]), np.float32)
    for start in range(0, len(descriptors), len(real)):
        block = descriptors[start : start + len(real)]
        block[:] = real[: len(block)] if start == 0 else noisy(real[: len(block)], rng)
    wanted = rng.choice(len(descriptors), args.queries, replace=False)
    queries = noisy(descriptors[wanted], rng)

    print(
        f"\n{len(descriptors)} descriptors of {descriptors.shape[1]}, "
        f"{min(len(real), len(descriptors))} of them of photographs\n"
    )
    print("| index | MB per million | train (s) | add (s) | ms per query of 1000 | found |")
    print("|---|---|---|---|---|---|")
    lists = list_count(len(descriptors))
    for factory in ("Flat", f"IVF{lists},SQ8"):
        index = faiss.index_factory(descriptors.shape[1], factory)
        began = time.perf_counter()
        if not index.is_trained:
            index.train(
                descriptors[
                    rng.choice(len(descriptors), min(len(descriptors), TRAINED_PER_LIST * lists))
                ]
            )
        train = time.perf_counter() - began
        began = time.perf_counter()
        index.add(descriptors)
        add = time.perf_counter() - began
        ivf = faiss.try_extract_index_ivf(index)
        if ivf is not None:
            ivf.nprobe = PROBES
        some = queries if ivf is not None else queries[:200]
        began = time.perf_counter()
        _, neighbours = index.search(some, NEIGHBOURS)
        search = (time.perf_counter() - began) / len(some) * 1000
        size = len(faiss.serialize_index(index)) / len(descriptors)
        hit = (neighbours == wanted[: len(some), None]).any(axis=1).mean()
        times = f"{train:.1f} | {add:.1f} | {1e3 * search:.0f}"
        print(f"| {factory} | {size:.0f} | {times} | {hit:.1%} |", flush=True)
    return 0
