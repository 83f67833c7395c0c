"""Time `KDFeature` on the devices of this machine: `python -m experiments devices`."""

import argparse
import statistics
import time
from collections.abc import Sequence

import torch

from kd_cv import KDFeature


def main(arguments: Sequence[str]) -> int:
    """Print a Markdown table: milliseconds for each image, by device and batch."""
    parser = argparse.ArgumentParser("python -m experiments devices", description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=(480, 640), metavar=("H", "W"))
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args(arguments)
    feature = KDFeature(args.features)
    print(
        f"{args.features} keypoints, {args.size[0]} x {args.size[1]}, torch {torch.__version__}\n"
    )
    print("| device | batch | ms for each image |\n|---|---|---|")
    for device in devices():
        name = torch.cuda.get_device_name() if device == "cuda" else device
        for batch in args.batches:
            images = torch.rand(batch, 1, *args.size, device=device)
            seconds = measure(feature.to(device), images, args.repeats)
            print(f"| {name} | {batch} | {1000 * seconds / batch:.1f} |")
    return 0


def devices() -> list[str]:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [name for name, available in there.items() if available] + ["cpu"]


@torch.inference_mode()
def measure(feature: KDFeature, images: torch.Tensor, repeats: int) -> float:
    """Median of the seconds that a call takes, after two calls to warm up."""
    times = []
    for _ in range(repeats + 2):
        _wait(images.device)
        start = time.perf_counter()
        feature(images)
        _wait(images.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
