"""Speed and memory of the descriptor: ratios measured side by side in one run.

Each section is a function (inputs, config, say) that yields rows; it can run alone. One whose
extra is not installed, or that this system cannot measure, is skipped with a note.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from experiments.benchmarks import commands, compute, detect, fresh, matching, rivals
from experiments.benchmarks.inputs import Config, Inputs, load_inputs
from experiments.benchmarks.measure import CannotMeasure, Row
from experiments.benchmarks.report import Part, Report, Say, header
from kd_cv.parallel import cores


@dataclass(frozen=True)
class Section:
    title: str
    rows: Callable[[Inputs, Config, Say], Iterator[Row]]


def _detector_stages(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    from experiments.benchmarks import detector_stages  # needs Numba

    return detector_stages.stages(inputs, config, say)


def _stages(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    from experiments.benchmarks import stages  # needs Numba

    return stages.stages(inputs, config, say)


SECTIONS = {
    "detector": Section("OpenCV's features / KDDescriptor, call by call", detect.detector),
    "detector-large": Section("the same at 12 megapixels", detect.large),
    "detector-memory": Section("peak memory of detectAndCompute", detect.detector_memory),
    "match-calls": Section("SIFT, knnMatch and MAGSAC / match", matching.match_calls),
    "neighbours": Section("nearest neighbours / the bare product", matching.neighbours),
    "poses": Section("match's pose estimation", matching.poses),
    "views": Section("detectAndCompute with synthetic views", matching.views),
    "match": Section("kd-cv match of two photographs", commands.match_large),
    "detector-stages": Section(
        "each stage of detect on 1 thread / its floor: OpenCV's blurs, a copy, arithmetic",
        _detector_stages,
    ),
    "sift": Section("cv2.SIFT.compute / KDDescriptor.compute", compute.sift),
    "threads": Section("KDDescriptor.compute on 1 thread / on 2", compute.two_threads),
    "growth": Section("cost by number of keypoints, against cv2.SIFT.compute", compute.growth),
    "feature": Section("Kornia's SIFTFeature / KDFeature, images in", rivals.feature),
    "kornia": Section("Kornia's descriptors / describe", rivals.kornia),
    "module": Section("Kornia's MKDDescriptor / KDModule, both raw", rivals.module),
    "busy": Section("Kornia's modules / kd_cv, idle and on a busy machine", rivals.busy),
    "start": Section("first call and import, each in a new process", fresh.start),
    "memory": Section("peak memory of KDDescriptor.compute", fresh.memory),
    "module-memory": Section(
        "peak memory, Kornia's MKDDescriptor / KDModule", rivals.module_memory
    ),
    "stages": Section(
        "each stage for one keypoint on 1 thread / its floor: arithmetic at the rate of a product",
        _stages,
    ),
}


def run(
    config: Config | None = None,
    image: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    say: Say = lambda text: None,
) -> Report:
    """Measure the sections named in `only`, or all.

    image: a photograph; the built-in one by default. say: is told what is being measured.
    """
    config = config or Config()
    unknown = [name for name in only if name not in SECTIONS]
    if unknown:
        raise ValueError(f"unknown section {unknown[0]!r}: expected one of {', '.join(SECTIONS)}")
    inputs = load_inputs(image)
    inputs.keypoints(1)  # a picture without keypoints is refused before any work
    head = header(inputs, cores(), config.rounds)
    names = [name for name in SECTIONS if name in only or not only]
    parts = []
    for i, name in enumerate(names):
        say_where = partial(_say, say, f"{name} ({i + 1} of {len(names)})")
        parts.append(_part(name, inputs, config, say_where))
    return Report(head, tuple(parts))


def _say(say: Say, place: str, text: str) -> None:
    say(f"{place}: {text}")


def _part(name: str, inputs: Inputs, config: Config, say: Say) -> Part:
    section = SECTIONS[name]
    rows: list[Row] = []
    skipped = failed = ""
    say("begins")
    try:
        for row in section.rows(inputs, config, say):
            rows.append(row)
    except (ImportError, CannotMeasure) as error:
        skipped = str(error)
    except Exception as error:  # minutes of other measurements must not be lost
        failed = f"{type(error).__name__}: {error}"
    return Part(name, section.title, tuple(rows), skipped, failed)
