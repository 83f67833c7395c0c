"""Sections on batches of patches, against Kornia's descriptors on the CPU."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from experiments.benchmarks.detect import of_size
from experiments.benchmarks.fresh import check_proc, in_new_process
from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import Row, Spread, Target, Work, ratio_row, take_turns, threads
from experiments.benchmarks.modules import kornia_mkd, plain_module, torch_and_kornia
from experiments.benchmarks.report import Say
from kd_cv.extractor import describe
from kd_cv.parallel import cores

#: Patch size to how many times faster than Kornia's MKD.
DESCRIBE_TARGETS = {32: 10.0, 64: 30.0}
FORWARD_TARGETS = {32: 8.0, 64: 20.0}
FEATURE_TARGET = 6.0  # of Kornia's whole pipeline of SIFT
PLAIN_TARGET = 3.0  # with gradients, or by plain torch operations; in time and in memory


def kornia(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """`describe` against modules of Kornia: raw against MKD, else whitened."""
    torch, feature = torch_and_kornia()
    for P in config.patch_sizes:
        patches = inputs.patches(config.batch, P)
        tensor = torch.from_numpy(patches)[:, None]
        rivals: dict[str, Any] = {
            "MKDDescriptor(whitening=None)": kornia_mkd(P),
            "SIFTDescriptor": feature.SIFTDescriptor(P),
        }
        if P == 32:  # the only size it takes
            rivals["HardNet, random weights"] = feature.HardNet(pretrained=False)
        for name, module in rivals.items():
            say(f"{name}, P = {P}")
            raw = name.startswith("MKD")
            options: dict[str, Any] = {"whitening": None} if raw else {}
            with _all_cores(torch), torch.inference_mode():
                times = take_turns(
                    {
                        "rival": _forward(module.eval(), tensor),
                        "kd_cv": partial(describe, patches, **options),
                    },
                    config.rounds,
                    config.seconds,
                )
            yield ratio_row(
                f"{name} / describe, {config.batch:,} patches, P = {P}",
                times["rival"],
                times["kd_cv"],
                target=Target(DESCRIBE_TARGETS[P]) if raw and P in DESCRIBE_TARGETS else None,
                note="raw" if raw else "whitened to 128",
            )


def feature(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """`KDFeature`, detector and descriptor, against `kornia.feature.SIFTFeature` on the CPU."""
    torch, of_kornia = torch_and_kornia()
    from kd_cv.nn.feature import KDFeature

    height, width, count = config.feature_image
    label = f"SIFTFeature / KDFeature, {width} x {height}, {count:,} keypoints"
    say(label)
    image = of_size(inputs.image, height, width)
    tensor = torch.from_numpy(image.astype("float32") / 255)[None, None]
    pair = {
        "rival": _forward(of_kornia.SIFTFeature(count).eval(), tensor),
        "kd_cv": _forward(KDFeature(count), tensor),
    }
    with _all_cores(torch):
        times = take_turns(pair, config.rounds, config.seconds)
    yield ratio_row(label, times["rival"], times["kd_cv"], target=Target(FEATURE_TARGET))


def module(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """`KDModule(whitening=None)` against `MKDDescriptor(whitening=None)`."""
    torch, _ = torch_and_kornia()
    from kd_cv.nn.module import KDModule

    for P in config.patch_sizes:
        tensor = torch.from_numpy(inputs.patches(config.batch, P))[:, None]
        ways: list[tuple[str, Any, Callable[..., Work], float | None]] = [
            ("forward", KDModule(P, whitening=None), _forward, FORWARD_TARGETS.get(P)),
            ("forward, plain torch", plain_module(P), _forward, PLAIN_TARGET),
            ("forward and backward", KDModule(P, whitening=None), _backward, PLAIN_TARGET),
        ]
        for way, kd_cv, work, target in ways:
            say(f"{way}, P = {P}")
            pair = {"rival": work(kornia_mkd(P), tensor), "kd_cv": work(kd_cv, tensor)}
            with _all_cores(torch):
                times = take_turns(pair, config.rounds)
            yield ratio_row(
                f"{way}, {config.batch:,} patches, P = {P}",
                times["rival"],
                times["kd_cv"],
                target=None if target is None else Target(target),
            )


def busy(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Every torch module against Kornia's, on an idle machine and beside busy processes.

    Detectors and features of one image with as many keypoints as there are patches.
    """
    for name, (pair, rounds) in _torch_modules(inputs, config).items():
        for count in (0, cores()):
            where = f"beside {count} busy processes" if count else "idle"
            say(f"{name}, {where}")
            with _all_cores(torch_and_kornia()[0]), _load(count):
                times = take_turns(pair, rounds)
            yield ratio_row(f"{name}, {where}", times["rival"], times["kd_cv"], target=Target(1.0))


def _torch_modules(inputs: Inputs, config: Config) -> dict[str, tuple[dict[str, Work], int]]:
    torch, of_kornia = torch_and_kornia()
    from kd_cv.nn.feature import KDFeature
    from kd_cv.nn.module import KDModule

    P, count = config.patch_sizes[0], config.batch
    patches = torch.from_numpy(inputs.patches(count, P))[:, None]
    mkd, kd = kornia_mkd(P), KDModule(P, whitening=None)
    height, width, _ = config.feature_image
    image = of_size(inputs.image, height, width)
    tensor = torch.from_numpy(image.astype("float32") / 255)[None, None]
    feature = KDFeature(count, descriptor=kd)
    detector = of_kornia.SIFTFeature(count).eval().detector
    at_lafs = of_kornia.LAFDescriptor(mkd, P)
    lafs = feature(tensor)[0]
    works = {
        f"forward, {count:,} patches, P = {P}": (_forward(mkd, patches), _forward(kd, patches)),
        f"forward and backward, {count:,} patches, P = {P}": (
            _backward(mkd, patches),
            _backward(kd, patches),
        ),
        f"DoGDetector, {width} x {height}, {count:,} keypoints": (
            _forward(detector, tensor),
            _forward(feature.detector, tensor),
        ),
        f"KDFeature, {width} x {height}, {count:,} keypoints": (
            _forward(of_kornia.LocalFeature(detector, at_lafs), tensor),
            _forward(feature, tensor),
        ),
        f"KDFeature.describe, forward and backward to the image, {count:,} LAFs": (
            _backward(partial(_swapped, at_lafs, lafs), tensor),
            _backward(partial(_swapped, feature.describe, lafs), tensor),
        ),
    }
    return {
        name: ({"rival": rival, "kd_cv": kd_cv}, config.rounds if "patches" in name else 3)
        for name, (rival, kd_cv) in works.items()
    }


def _swapped(describe: Callable[..., Any], lafs: Any, images: Any) -> Any:
    return describe(images, lafs)


def module_memory(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Peak memory of the same modules by plain torch operations, in new processes."""
    check_proc()
    torch_and_kornia()
    for P in config.patch_sizes:
        for gradients in (False, True):
            way = "forward and backward" if gradients else "forward, plain torch"
            say(f"{way}, P = {P}")
            rival, kd_cv = (
                in_new_process(
                    "module_memory",
                    rival=is_rival,
                    gradients=gradients,
                    patch_size=P,
                    batch=config.batch,
                )["peak"]
                for is_rival in (True, False)
            )
            yield Row(
                f"{way}, {config.batch:,} patches, P = {P}",
                Spread.of([rival / kd_cv]),
                against=Spread.of([rival]),
                kd_cv=Spread.of([kd_cv]),
                target=Target(PLAIN_TARGET),
                of_bytes=True,
            )


@contextmanager
def _load(count: int) -> Iterator[None]:
    """`count` processes that do nothing but take time."""
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


@contextmanager
def _all_cores(torch: Any) -> Iterator[None]:
    """All cores for torch, OpenCV and kd_cv."""
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        with threads(cores()):
            yield
    finally:
        torch.set_num_threads(before)


def _forward(module: Any, patches: Any) -> Work:
    import torch

    def run() -> None:
        with torch.inference_mode():
            module(patches)

    return run


def _backward(module: Any, patches: Any) -> Work:
    import torch

    def run() -> None:
        leaf = patches.detach().requires_grad_()
        with torch.enable_grad():
            module(leaf).square().sum().backward()

    return run
