"""Fuzz what reads the bytes of others: python tests/robust/fuzz/run.py [TARGET ...] --seconds 60

Every target runs in a process of its own with a limit on its memory, and a limit on the time of an
input. Atheris (coverage-guided, `pip install atheris`) chooses the inputs; where it is not
installed, random changes of the seeds do. An input that crashes, hangs, takes too much memory or
raises what it should not is kept in the folder --output; the exit code is 1 if there is any.
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
TIMEOUT = 20  # seconds for one input; the slowest seed takes less than 0.1
MAX_FINDS = 20  # of one target


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


def child(name: str, seconds: float, seed: int, output: Path, plain: bool) -> None:
    """Fuzz one target until the time is over; the parent reads the log and the folder."""
    if not plain:
        import atheris

        with atheris.instrument_imports(include=["kd_cv", "zipfile", "json", "targets"]):
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
            if time.monotonic() > end:
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
        "rss_limit_mb": 0, "artifact_prefix": f"{output}/", "max_len": 1 << 15,
        "len_control": 0, "print_final_stats": 1,
    }  # fmt: skip
    arguments = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], one)
    atheris.Fuzz()


def _virtual() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


# --------------------------------------------------------------------------------------- the parent


def fuzz(name: str, seconds: float, seed: int, output: Path, plain: bool) -> tuple[int, int, int]:
    """Run a target, again after each crash, until the time is over: inputs, taken, findings."""
    end = time.monotonic() + seconds
    runs = taken = crashes = 0
    folder = output / name
    folder.mkdir(parents=True, exist_ok=True)
    while crashes < MAX_FINDS and (left := end - time.monotonic()) > 0:
        (folder / "runs").unlink(missing_ok=True)
        command = [
            sys.executable, str(Path(__file__).resolve()), name, "--child", "--seconds", str(left),
            "--seed", str(seed + crashes), "--output", str(folder), *["--plain"] * plain,
        ]  # fmt: skip
        quiet = {**os.environ, "OPENCV_LOG_LEVEL": "SILENT", "OPENBLAS_NUM_THREADS": "1"}
        fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with open(folder / "log", "wb") as log, tempfile.TemporaryDirectory(dir=fast) as scratch:
            ended = subprocess.run(
                command, stdout=log, stderr=log, check=False, env={**quiet, "TMPDIR": scratch}
            )
        if (folder / "runs").exists():
            a, b = (folder / "runs").read_text().split()
            runs, taken = runs + int(a), taken + int(b)
        if ended.returncode == 0:
            break
        crashes += 1
        print(f"{name}: ended with code {ended.returncode}")
        print("    " + "\n    ".join(_tail(folder / "log")))
        if (folder / "last").exists():
            (folder / "last").rename(folder / f"crash-{seed + crashes}")
        if runs == 0:
            break  # it never began
    for path in [folder / "last", folder / "runs"]:
        path.unlink(missing_ok=True)
    raised = sorted(folder.glob("raised-*.txt"))
    for path in raised:
        print(f"{name}: {path.with_suffix('')}")
        print("    " + "\n    ".join(path.read_text().strip().splitlines()[-3:]))
    return runs, taken, crashes + len(raised)


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="for findings; a temporary folder by default")
    parser.add_argument("--plain", action="store_true", help="without Atheris")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    plain = arguments.plain or importlib.util.find_spec("atheris") is None
    if arguments.child:
        child(arguments.targets[0], arguments.seconds, arguments.seed, arguments.output, plain)
        return 0
    from targets import TARGETS

    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"unknown targets {sorted(unknown)}: expected some of {list(TARGETS)}")
    output = arguments.output or Path(tempfile.mkdtemp(prefix="kd_cv-fuzz-"))
    print("inputs by", "random changes of the seeds" if plain else "Atheris", flush=True)
    findings = 0
    for name in arguments.targets or TARGETS:
        module = TARGETS[name].needs
        if module and importlib.util.find_spec(module) is None:
            print(f"{name}: left out, {module} is not installed")
            continue
        runs, taken, found = fuzz(name, arguments.seconds, arguments.seed, output, plain)
        findings += found
        print(f"{name}: {runs} inputs, {taken} taken, {found} findings", flush=True)
    print(f"{findings} findings" + (f" in {output}" if findings else ""))
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
