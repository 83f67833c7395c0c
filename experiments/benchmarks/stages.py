"""Time each stage of the compiled descriptor, beside its floor.

The pipeline is run up to each stage in turn; what a stage costs is the difference, with its
inputs in the cache just as they are in the real run. Its floor is its count of arithmetic
operations at the rate of a large matrix product, measured on one core.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.fresh import in_new_process
from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import Row, Spread, Times, Work, take_turns, threads
from experiments.benchmarks.report import Say
from kd_cv.descriptor import compiled
from kd_cv.descriptor.frames import Frames, patch_regions
from kd_cv.descriptor.patches import pyramid_for, sampling_steps
from kd_cv.descriptor.spec import PLANES, Spec
from kd_cv.keypoints import copy_keypoints, from_keypoints
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.parallel import CHUNK

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def operations(spec: Spec, dim: int) -> dict[str, int]:
    """Arithmetic operations of each stage for one patch; a root or a division counts as one."""
    pixels, D = spec.patch_size**2, spec.dim
    functions = spec.constants.Phi.shape[1]
    nonzeros = int(np.count_nonzero(spec.constants.T))
    return {
        # positions 4, limits 4, fractions 2, three linear interpolations of 3
        "sample": 19 * pixels,
        # twice 3 products and 4 sums; the sum of regions
        "smooth": 16 * pixels,
        # gradients 2, squared norm and its sum 4, roots and division 4, cosines and sines 13,
        # weights 6; and eight sums for four pixels of each plane
        "planes": (29 + 2 * PLANES) * pixels,
        # each function meets a quarter of the pixels
        "product": 2 * PLANES * functions * pixels // 4,
        # the sum of regions, the scale, and adding up scales: 4 for each dimension
        "recombine": 2 * nonzeros + 4 * D,
        # two norms, the mean, the projection
        "finish": 4 * D + 2 * D * dim + 3 * dim,
    }


def stages(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Rows of both patch sizes; the first says what the floor is measured by."""
    say("rate of a matrix product")
    rate = in_new_process("matrix_rate", ONE_THREAD, side=1024, rounds=10 + config.rounds)["rate"]
    yield Row("float32 matrix product, 1 thread", Spread.of([rate / 1e9]), "GFLOP/s")
    for P in config.patch_sizes:
        say(f"P = {P}")
        yield from _stage_rows(inputs, config, P, rate)


def _stage_rows(inputs: Inputs, config: Config, P: int, rate: float) -> Iterator[Row]:
    kd = inputs.descriptor(P)
    spec = kd.spec
    keypoints = inputs.keypoints(config.stage_keypoints)
    frames = from_keypoints(keypoints)
    run, steps = truncated(inputs.image, frames, kd)
    works: dict[str, Work] = {
        "keypoints": lambda: from_keypoints(copy_keypoints(keypoints)),
        "steps": lambda: sampling_steps(
            patch_regions(frames, inputs.image.shape, kd.settings.side),
            inputs.image.shape,
            P,
        ),
        "pyramid": lambda: pyramid_for(inputs.image, steps),
        **{stage: partial(run, 1 + i) for i, stage in enumerate(compiled.STAGES)},
        "compute": lambda: kd.compute(inputs.image, keypoints),
    }
    with threads(1):
        # Processor time: other processes on the machine do not count.
        times = take_turns(works, 3 * config.rounds, clock=time.thread_time)
    for stage, before in reversed(list(zip(compiled.STAGES[1:], compiled.STAGES, strict=False))):
        times[stage] = times[stage] - times[before]
    counted = operations(spec, kd.descriptorSize())
    whole = times["compute"]
    for stage in (*compiled.STAGES, "keypoints", "steps", "pyramid"):
        fraction = f"{np.median(times[stage] / whole):.0%} of compute"
        each = times[stage] / len(keypoints)
        if stage in counted:
            yield floor_row(f"P = {P}: {stage}", each, counted[stage], rate, fraction)
        else:
            label = {"keypoints": "keypoints to frames", "steps": "frames to steps"}.get(stage)
            micro = Spread.of(1e6 * each)
            yield Row(
                f"P = {P}: {label or stage}", micro, "us", kd_cv=Spread.of(each), note=fraction
            )
    total = sum(counted.values())
    yield floor_row(f"P = {P}: compute", whole / len(keypoints), total, rate, "")


def floor_row(name: str, each: Times, count: int, rate: float, note: str) -> Row:
    """Seconds of one keypoint against its operations at the measured rate."""
    floor = count / rate
    note = f"{note}, {count:,} operations".removeprefix(", ")
    return Row(name, Spread.of(each / floor), "x", Spread.of([floor]), Spread.of(each), note=note)


def truncated(
    image: NDArray[Any], frames: Frames, kd: KDDescriptor
) -> tuple[Callable[[int], NDArray[np.float32]], NDArray[np.float64]]:
    """A function that describes frames of an image by the first few stages, and the steps."""
    spec = kd.spec
    regions = patch_regions(frames, image.shape, kd.settings.side)
    steps = sampling_steps(regions, image.shape, spec.patch_size)
    pyramid = pyramid_for(image, steps)
    plan, whitening = compiled.plan(spec), compiled.padded(kd.projection, spec)
    out = np.zeros((len(frames), kd.descriptorSize()), np.float32)

    def run(stages: int) -> NDArray[np.float32]:
        for a in range(0, len(out), CHUNK):
            b = a + CHUNK
            compiled.describe(pyramid, steps[a:b], plan, whitening, out[a:b], stages)
        return out

    return run, steps
