"""The descriptors are those that were stored: on every path, in every process, on every machine."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden import make

from kd_cv import KDDescriptor
from kd_cv.descriptor import describer
from kd_cv.descriptor.patches import as_scales
from kd_cv.keypoints import to_keypoints
from kd_cv.whitening.files import use_of_images

with np.load(make.PATH) as stored:
    GOLDEN = dict(stored)
TOLERANCE = 1e-4


def by_descriptor(name, kernel, P, whitening, scales):
    kd = KDDescriptor(patch_size=P, kernel=kernel, whitening=whitening, scales=scales)
    return kd.compute(make.photograph(name), to_keypoints(GOLDEN[f"{name}/frames"]))[1]


def fused(name, *case):
    pytest.importorskip("numba")
    assert describer.load_compiled() is not None
    return by_descriptor(name, *case)


def without_numba(name, *case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(describer, "load_compiled", lambda: None)
        return by_descriptor(name, *case)


def float64(name, *case):
    return make.in_float64(make.photograph(name), GOLDEN[f"{name}/frames"], *case)


def module(name, kernel, P, whitening, scales, gradient=False):
    import torch

    from kd_cv import KDModule

    frames = GOLDEN[f"{name}/frames"]
    patches = torch.from_numpy(make.patches_at(make.photograph(name), frames, P, scales))
    kd = KDModule(P, kernel, whitening, use=use_of_images(as_scales(scales)))
    return kd.pooled(patches.requires_grad_(gradient)).detach().numpy()


def differentiable_module(name, *case):
    return module(name, *case, gradient=True)


@pytest.mark.parametrize("name", make.FRAMES)
def test_the_photograph_is_the_one_that_was_described(name):
    assert np.array_equal(make.checksum(name), GOLDEN[f"{name}/sha256"]), "another scikit-image?"


def assert_stored(path, kernel, P):
    """`path` gives the stored rows of a uint8 and a float image, raw, whitened and pooled."""
    cases = [case for case in make.CASES if case[:2] == (kernel, P)]
    assert len(cases) == 4
    for name in make.FRAMES:
        for case in cases:
            rows, stored = path(name, *case), GOLDEN[f"{name}/{make.case_name(*case)}"]
            np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-6)
            np.testing.assert_allclose(rows, stored, rtol=0, atol=TOLERANCE, err_msg=f"{case}")


@pytest.mark.parametrize("path", [fused, without_numba, float64])
@pytest.mark.parametrize("P", [16, 32, 64])
@pytest.mark.parametrize("kernel", ["concat", "polar", "cart"])
def test_every_path_gives_the_stored_descriptors(path, kernel, P):
    assert_stored(path, kernel, P)


@pytest.mark.slow
@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("path", [module, differentiable_module])
@pytest.mark.parametrize("P", [16, 32, 64])
@pytest.mark.parametrize("kernel", ["concat", "polar", "cart"])
def test_the_module_gives_them_too(path, kernel, P):
    assert_stored(path, kernel, P)


def test_every_case_is_stored_and_the_file_is_small():
    names = {f"{name}/{make.case_name(*case)}" for name in make.FRAMES for case in make.CASES}
    assert names < GOLDEN.keys() and len(names) == 72
    assert make.PATH.stat().st_size < 200_000


PROGRAM = """
import sys
threads, chunk, seed = map(int, sys.argv[1:])
import cv2, hashlib, numpy as np
cv2.setNumThreads(threads)
from kd_cv import KDDescriptor, describe
from kd_cv import parallel as home
from kd_cv.keypoints import to_keypoints
from kd_cv.descriptor.patches import as_scales
from kd_cv.whitening.files import use_of_images
home.CHUNK = chunk
from golden import make
rng = np.random.default_rng(5)
frames = np.column_stack([rng.uniform(0, 500, (400, 2)), rng.uniform(1, 40, 400),
                          rng.uniform(0, 360, 400)])
order = np.random.default_rng(seed).permutation(400)
digest = hashlib.sha256()
for name in make.FRAMES:
    gray = make.photograph(name)
    for options in ({}, {"whitening": None}, {"patch_size": 64, "scales": 3}):
        rows = KDDescriptor(**options, drop=False).compute(gray, to_keypoints(frames[order]))[1]
        digest.update(rows[np.argsort(order)].tobytes())
    patches = make.patches_at(gray, frames, 32, 1)[:, 0]
    digest.update(describe(patches[order])[np.argsort(order)].tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_new_processes_give_the_same_bits_whatever_the_threads_chunks_and_order():
    pytest.importorskip("numba")
    settings = [(1, 96, 0), (2, 17, 1), (4, 64, 2)]
    digests = set()
    for setting in settings:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, setting)],
            capture_output=True, text=True, timeout=300, cwd=Path(__file__).parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1 and len(digests.pop().strip()) == 64
