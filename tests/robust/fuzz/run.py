"""Fuzz what takes bytes and arguments of others: python tests/robust/fuzz/run.py [TARGET ...]

Every target runs in a process of its own with a limit on its memory, and a limit on the time of an
input. Atheris (coverage-guided, `pip install atheris`) chooses the inputs; where it is not
installed, random changes of the seeds do. An input that crashes, hangs, takes too much memory or
raises what it should not is kept in the folder --output; the exit code is 1 if there is any. A run
with the same --output goes on from the inputs that were of interest.

    run.py --seconds 600 --output findings    ten minutes for each target
    run.py detector --inputs 100000           until there were as many
    run.py detector --replay FILE             what one input does
"""

import argparse
import faulthandler
import hashlib
import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
MEMORY = 1 << 30  # beyond what the process has when all is loaded
TIMEOUT = 60  # seconds for one input; the slowest seed takes less than 0.1
MAX_FINDS = 20  # of one target
OF_TIME = 70  # libFuzzer's exit code for an input that takes too long
# Of what OpenCV decodes: the limits that are our own are lower here too, see `target`.
QUIET = {
    **os.environ, "OPENCV_LOG_LEVEL": "SILENT", "OPENBLAS_NUM_THREADS": "1",
    "OPENCV_IO_MAX_IMAGE_PIXELS": str(2**22),
}  # fmt: skip


def kept(name: str) -> list[bytes]:
    """The inputs that once were findings."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


# ------------------------------------------------------------------------------ the fuzzing process


class Finds:
    """Inputs that raised what they should not: one for each place it came from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: set[str] = set()

    def add(self, data: bytes, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} {frame.filename}:{frame.lineno}"
        if place in self.places or len(self.places) >= MAX_FINDS:
            return
        self.places.add(place)
        path = self.folder / f"raised-{hashlib.sha256(data).hexdigest()[:16]}"
        path.write_bytes(data)
        text = "".join(traceback.format_exception(error))
        path.with_suffix(".txt").write_text(text, encoding="utf-8", errors="replace")


def child(name: str, seconds: float, most: int, seed: int, output: Path, plain: bool) -> None:
    """Fuzz one target until the time or `most` inputs are over; the parent reads the folder."""
    if not plain:
        import atheris

        seen = ["kd_cv", "zipfile", "json", "files", "calls", "choices"]
        with atheris.instrument_imports(include=seen):
            from targets import TARGETS
    else:
        from targets import TARGETS
    target = TARGETS[name]
    inputs = target.seeds() + kept(name)
    finds, counts = Finds(output), [0, 0]
    last = output / "last"

    def one(data: bytes) -> None:
        last.write_bytes(data)  # for the parent, if this is the end
        counts[0] += 1
        if counts[0] % 50 == 0:
            (output / "runs").write_text(f"{counts[0]} {counts[1]}")
        try:
            counts[1] += target.check(data)
        except Exception as error:
            finds.add(data, error)

    for data in inputs:  # compiles and loads what is loaded late
        one(data)
    (output / "runs").write_text(f"{counts[0]} {counts[1]}")
    limit = _virtual() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if plain:
        from pieces import mutations

        end = time.monotonic() + seconds
        for data in mutations(inputs, seed):
            faulthandler.dump_traceback_later(TIMEOUT, exit=True)
            one(data)
            if time.monotonic() > end or counts[0] >= most:
                break
        faulthandler.cancel_dump_traceback_later()
        (output / "runs").write_text(f"{counts[0]} {counts[1]}")
        return
    corpus = output / "corpus"
    corpus.mkdir(exist_ok=True)
    for data in inputs:
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = {
        "max_total_time": max(1, round(seconds)), "timeout": TIMEOUT, "seed": seed + 1,
        "runs": max(1, most - counts[0]),
        "rss_limit_mb": 0, "artifact_prefix": f"{output}/", "max_len": target.longest,
        "len_control": 0, "print_final_stats": 1,
    }  # fmt: skip
    arguments = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], one)
    atheris.Fuzz()


def _virtual() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


# --------------------------------------------------------------------------------------- the parent


def fuzz(
    name: str, seconds: float, most: int, seed: int, output: Path, plain: bool
) -> tuple[int, int, int]:
    """Run a target, again after each crash, until all is over: inputs, taken, findings."""
    end = time.monotonic() + seconds
    runs = taken = crashes = starts = 0
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    while crashes < MAX_FINDS and runs < most and (left := end - time.monotonic()) > 0:
        starts += 1
        (folder / "runs").unlink(missing_ok=True)
        command = [
            sys.executable, str(Path(__file__).resolve()), name, "--child", "--seconds", str(left),
            "--inputs", str(most - runs), "--seed", str(seed + starts), "--output", str(folder),
            *["--plain"] * plain,
        ]  # fmt: skip
        fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with open(folder / "log", "wb") as log, tempfile.TemporaryDirectory(dir=fast) as scratch:
            ended = subprocess.run(
                command, stdout=log, stderr=log, check=False, env={**QUIET, "TMPDIR": scratch}
            )
        if (folder / "runs").exists():
            a, b = (folder / "runs").read_text().split()
            runs, taken = runs + int(a), taken + int(b)
        if ended.returncode == 0:
            break
        if runs == 0:
            crashes += 1
        print(f"{name}: ended with code {ended.returncode}")
        print("    " + "\n    ".join(_tail(folder / "log")))
        if runs == 0:
            break  # it never began
        last = folder / f"crash-{seed + starts}"
        (folder / "last").rename(last)
        if ended.returncode == OF_TIME and _passes(name, last):
            print(f"{name}: {last.name} takes no such time again: the machine was busy")
            last.unlink()
        else:
            crashes += 1
    for path in [folder / "last", folder / "runs"]:
        path.unlink(missing_ok=True)
    raised = sorted(folder.glob("raised-*.txt"))
    for path in raised:
        print(f"{name}: {path.with_suffix('')}")
        print("    " + "\n    ".join(path.read_text().strip().splitlines()[-3:]))
    return runs, taken, crashes + len(raised)


def _passes(name: str, path: Path) -> bool:
    """Whether an input does no harm when it is run alone."""
    command = [sys.executable, str(Path(__file__).resolve()), name, "--replay", str(path)]
    try:
        ended = subprocess.run(
            command, capture_output=True, check=False, env=QUIET, timeout=2 * TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def _tail(log: Path) -> list[str]:
    lines = log.read_bytes().decode("utf-8", "replace").splitlines()
    telling = [line for line in lines if re.search("rror|imeout|Fatal|File|SUMMARY|Current", line)]
    return telling[-8:] or lines[-8:]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--seconds", type=float, default=60, help="for each target (60)")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="for each, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="for findings; a temporary folder by default")
    parser.add_argument("--plain", action="store_true", help="without Atheris")
    parser.add_argument("--replay", type=Path, help="run this one input of one target")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    plain = arguments.plain or importlib.util.find_spec("atheris") is None
    if arguments.child:
        child(
            arguments.targets[0], arguments.seconds, arguments.inputs, arguments.seed,
            arguments.output, plain,
        )  # fmt: skip
        return 0
    from targets import TARGETS

    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown targets {sorted(unknown)}: expected some of {list(TARGETS)}")
    if arguments.replay:
        (name,) = arguments.targets
        taken = TARGETS[name].check(arguments.replay.read_bytes())
        print(f"{name}: {'taken' if taken else 'refused'}")
        return 0
    output = arguments.output or Path(tempfile.mkdtemp(prefix="kd_cv-fuzz-"))
    print("inputs by", "random changes of the seeds" if plain else "Atheris", flush=True)
    counts = {}
    for name in arguments.targets or TARGETS:
        module = TARGETS[name].needs
        if module and importlib.util.find_spec(module) is None:
            print(f"{name}: left out, {module} is not installed")
            continue
        counts[name] = fuzz(
            name, arguments.seconds, arguments.inputs, arguments.seed, output, plain
        )
        print("{}: {} inputs, {} taken, {} findings".format(name, *counts[name]), flush=True)
    inputs, taken, findings = (sum(column) for column in zip(*counts.values(), strict=True))
    print(f"{len(counts)} targets: {inputs} inputs, {taken} taken, {findings} findings")
    if findings:
        print(f"they are in {output}")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
