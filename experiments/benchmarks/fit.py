"""How long a fit takes, once descriptors are there.

python -m experiments fit [--count 100000]
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from kd_cv.fit.scenes import Samples
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening

DIM = 238
SCENES = 25


def main(arguments: Sequence[str]) -> int:
    """Statistics, all closed forms, and the trained projection, of made-up descriptors."""
    parser = argparse.ArgumentParser("python -m experiments fit", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="descriptors, half of each pair")
    half = parser.parse_args(arguments).count // 2
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(DIM, DIM)).astype(np.float32)
    clean = rng.normal(size=(half, DIM)).astype(np.float32) @ mixing
    noisy = clean + 5 * rng.normal(size=clean.shape).astype(np.float32)
    X = np.concatenate([clean, noisy])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    points = np.tile(np.arange(half), 2)
    pairs = np.arange(2 * half).reshape(2, -1).T

    started = time.perf_counter()
    statistics = Statistics(DIM).update(X, pairs)
    added = time.perf_counter()
    Whitening.fit(statistics)
    closed = time.perf_counter()
    samples = [
        Samples.of(X[points % SCENES == k], points[points % SCENES == k]) for k in range(SCENES)
    ]
    Whitening.fit(statistics, max_dim=128, samples=samples)
    trained = time.perf_counter()
    print(f"{2 * half} descriptors, {half} pairs: statistics {added - started:.2f} s, ", end="")
    print(f"closed forms {closed - added:.3f} s, with the trained one {trained - closed:.1f} s")
    return 0
