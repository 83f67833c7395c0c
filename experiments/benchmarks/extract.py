"""Throughput and memory of `kd_cv.collection.extract` on this machine.

python -m experiments extract [--folder photographs] [--images 64 192] [--workers 2]

The yardstick is the processor time of decoding, detecting and describing. One image after the other
on one thread gives the rate that would keep all cores busy with nothing else: "of ideal" is the
rate of the run over that. "of 2 x seconds" is what the summary of a run shows: the processor time
of the stages in that run over cores x seconds. On a machine that is busy with other things,
Linux's scheduler knows how long our threads stood ready without a core
(/proc/self/task/*/schedstat); the column "alone" takes that off.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2

from kd_cv import KDDescriptor
from kd_cv.collection import Extraction, extract
from kd_cv.collection.extraction import Clock
from kd_cv.io.images import list_photos, read_gray

SIZE = (1280, 853)


def collection(folder: Path, count: int, source: str | None) -> None:
    """`count` photographs: those of a folder over and over, or of scikit-image, enlarged."""
    if source:
        files = list_photos(source)
    else:
        from skimage import data

        files = []
        for name in ("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "gravel"):
            image = cv2.resize(getattr(data, name)(), SIZE, interpolation=cv2.INTER_CUBIC)
            files.append(folder.with_name(f"{name}.jpg"))
            cv2.imwrite(str(files[-1]), image)
    folder.mkdir()
    for i in range(count):
        file = files[i % len(files)]
        shutil.copyfile(file, folder / f"{i:05}{file.suffix}")


class Watch(threading.Thread):
    """Processor seconds and seconds of waiting for a core, of all threads of this process."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, tuple[int, int]] = {}
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.2):
            for task in Path("/proc/self/task").iterdir():
                try:
                    run, wait, _ = map(int, (task / "schedstat").read_text().split())
                except (OSError, ValueError):
                    continue  # a thread that has just ended
                self.seen[task.name] = run, wait

    def __enter__(self) -> "Watch":
        self.start()
        time.sleep(0.3)
        self.before = dict(self.seen)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join()
        self.seen.pop(str(self.native_id), None)

    def waited(self, threads: int) -> float:
        """Seconds that the busiest threads waited for a core, summed."""
        spent = [
            (run - self.before.get(task, (0, 0))[0], wait - self.before.get(task, (0, 0))[1])
            for task, (run, wait) in self.seen.items()
        ]
        return sum(wait for _, wait in sorted(spent)[-threads:]) * 1e-9


def chosen(weights: str | None, max_keypoints: int) -> Extraction:
    kd = KDDescriptor(whitening="ws", weights=weights) if weights else "kd"
    return Extraction(kd, max_keypoints)


def one_by_one(folder: Path, count: int, extraction: Extraction) -> tuple[dict[str, float], float]:
    """Mean processor seconds of each stage on one thread, and mean keypoints."""
    cv2.setNumThreads(1)
    clock = Clock()
    paths = list_photos(folder)[:count]
    extraction.features(read_gray(paths[0]))  # compiles
    keypoints = 0
    for path in paths:
        with clock("decode"):
            gray = read_gray(path)
        keypoints += len(extraction.features(gray, clock).frames)
    seconds = {stage: total / len(paths) for stage, total in clock.seconds.items()}
    return seconds, keypoints / len(paths)


def measured(folder: Path, workers: int, extraction: Extraction) -> dict[str, float]:
    first = next(iter(list_photos(folder)))
    extraction.features(read_gray(first))  # compiles
    cpu = time.process_time()
    with Watch() as watch:
        output = folder.with_name("features.h5")
        summary = extract(folder, output, extraction, workers=workers, overwrite=True)
    return {
        "images": summary.done,
        "keypoints": summary.keypoints,
        "seconds": summary.seconds,
        "stages": sum(summary.cpu.values()),
        "cpu": time.process_time() - cpu,
        "waited": watch.waited(workers),
        "bytes": summary.output.stat().st_size,
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("extract", description=str(__doc__).splitlines()[0])
    parser.add_argument("--folder", help="photographs to use instead of scikit-image's")
    parser.add_argument("--images", type=int, nargs="+", default=[64, 192])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--max-keypoints", type=int, default=2000)
    parser.add_argument("--weights", help="file of matrices for KD instead of the default")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    extraction = chosen(args.weights, args.max_keypoints)
    if args.measure:
        print(json.dumps(measured(Path(args.measure), args.workers, extraction)))
        return 0
    with tempfile.TemporaryDirectory() as work:
        folders = {n: Path(work) / str(n) for n in args.images}
        for count, folder in folders.items():
            collection(folder, count, args.folder)
        # On a thread of its own: the C library hands the main thread's memory back to the system
        # after each image, and then the detector takes twice as long.
        with ThreadPoolExecutor(1) as pool:
            alone = pool.submit(one_by_one, folders[args.images[0]], 14, extraction)
            stages, keypoints = alone.result()
        text = ", ".join(f"{stage} {1e3 * t:.1f} ms" for stage, t in stages.items())
        ideal = sum(stages.values()) / args.workers
        print(
            f"one by one: {text}, {keypoints:.0f} keypoints; "
            f"{1 / ideal:.1f} images/s would keep {args.workers} cores busy\n"
        )
        whole = f"of {args.workers} x seconds"
        titles = f"images/s | of ideal | {whole} | alone | of CPU time | kB/image | peak MB"
        print(f"| images | {titles} |")
        print("|---|---|---|---|---|---|---|---|")
        for folder in folders.values():
            command = [sys.executable, "-m", "experiments", "extract", "--measure", str(folder)]
            command += ["--workers", str(args.workers)]
            command += ["--max-keypoints", str(args.max_keypoints)]
            command += ["--weights", args.weights] if args.weights else []
            m = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
            cores = args.workers * m["seconds"]
            rate = m["images"] / m["seconds"]
            print(
                f"| {m['images']} | {rate:.1f} | {rate * ideal:.0%} "
                f"| {m['stages'] / cores:.0%} | {m['stages'] / (cores - m['waited']):.0%} "
                f"| {m['stages'] / m['cpu']:.0%} | {m['bytes'] / m['images'] / 1e3:.0f} "
                f"| {m['peak_MB']:.0f} |"
            )
    return 0
