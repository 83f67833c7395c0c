"""Kill a run at random moments, and see that what was whole is whole.

    python tests/robust/killing.py extract --times 100 --seed 0

The jobs: extract, fit, colmap, index. Each time the run begins where an earlier one has left a
whole result, and is to write another. It is killed (SIGKILL) at a moment of its choosing: half of
them anywhere in it, half towards the end, where it writes. Then the earlier result or the new one
must be there, whole; and a run that is let be must come to the new one. Prints what was found after
the kills, and ends with 1 at the first result that is neither.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from collections_of_photographs import SMALL, corner, photographs, whitened

from kd_cv.collection import Extraction, extract
from kd_cv.fit import fit_photos
from kd_cv.whitening import load, save


class Job:
    """What is killed: run(folder) writes to a folder beside `inputs`, over what `before` wrote."""

    def __init__(self, inputs: Path) -> None:
        self.inputs = inputs

    def before(self, folder: Path) -> None:
        """Write the earlier result."""
        raise NotImplementedError

    def run(self, folder: Path) -> None:
        raise NotImplementedError

    def result(self, folder: Path) -> object:
        """What the result of a folder holds, to be compared; an error if it is not whole."""
        raise NotImplementedError


class Extract(Job):
    """A collection that has grown: features.h5 is added to."""

    def __init__(self, inputs: Path) -> None:
        super().__init__(photographs(inputs / "images", count=24, side=160))

    def before(self, folder: Path) -> None:
        listed = self.inputs / "some.txt"
        listed.write_text("".join(f"{i:02}.jpg\n" for i in (1, 2, 4, 5)))
        extract(listed, folder / "f.h5", SMALL, root=self.inputs)

    def run(self, folder: Path) -> None:
        extract(self.inputs, folder / "f.h5", SMALL)

    def result(self, folder: Path) -> object:
        return (folder / "f.h5").read_bytes()


class Fit(Job):
    """Matrices in the place of others."""

    def __init__(self, inputs: Path) -> None:
        super().__init__(photographs(inputs / "images", count=3, side=200))

    def _write(self, folder: Path, kernel: str) -> None:
        entries = fit_photos(self.inputs, kernels=[kernel], max_keypoints=100, trained=False)
        save(folder / "mine.npz", entries)

    def before(self, folder: Path) -> None:
        self._write(folder, "polar")

    def run(self, folder: Path) -> None:
        self._write(folder, "cart")

    def result(self, folder: Path) -> object:
        return list(load(folder / "mine.npz"))  # which looks at its checksum


class Colmap(Job):
    """A reconstruction in a workspace that has one already, of more photographs."""

    def __init__(self, inputs: Path) -> None:
        super().__init__(corner(inputs / "images", views=4))
        self.extraction = Extraction(whitened(), 400)

    def _reconstruct(self, images: Path, folder: Path) -> None:
        from kd_cv.collection.colmap import reconstruct

        row = reconstruct(images, folder, self.extraction, camera="single", threads=2)
        assert row.registered == row.images, row

    def before(self, folder: Path) -> None:
        listed = self.inputs / "three.txt"
        listed.write_text("0.png\n1.png\n2.png\n")
        self._reconstruct(listed, folder)

    def run(self, folder: Path) -> None:
        self._reconstruct(self.inputs, folder)

    def result(self, folder: Path) -> object:
        import pycolmap

        with contextlib.closing(sqlite3.connect(folder / "database.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            names = [name for (name,) in database.execute("SELECT name FROM images ORDER BY name")]
            matched = database.execute("SELECT count(*) FROM two_view_geometries").fetchone()
        model = pycolmap.Reconstruction(folder / "sparse" / "0")
        pairs = (folder / "pairs.txt").read_text().splitlines()
        # Each is whole by itself; the kill may have come between two of them.
        views = model.num_reg_images()
        assert names == [f"{i}.png" for i in range(len(names))] and len(names) in (3, 4)
        assert matched == (len(names) * (len(names) - 1) // 2,) and len(pairs) in (3, 6)
        assert model.num_points3D() > 50 and views in (3, 4)
        return (views, len(names)) if views == len(names) else (4, 4)


class Index(Job):
    """An index of one feature file in the place of that of another."""

    def __init__(self, inputs: Path) -> None:
        super().__init__(inputs)
        for count in (3, 9):
            images = photographs(inputs / f"{count}", count=count, side=160)
            extract(images, inputs / f"{count}.h5", SMALL)

    def _write(self, folder: Path, count: int) -> None:
        from kd_cv.collection.retrieval import Index

        Index.build(self.inputs / f"{count}.h5", "IVF8,SQ8").save(folder / "index.npz")

    def before(self, folder: Path) -> None:
        self._write(folder, 3)

    def run(self, folder: Path) -> None:
        self._write(folder, 9)

    def result(self, folder: Path) -> object:
        from kd_cv.collection.retrieval import Index

        index = Index.load(folder / "index.npz")
        assert len(index) == index.starts[-1]
        return len(index.names)


JOBS = {"extract": Extract, "fit": Fit, "colmap": Colmap, "index": Index}


def forked(work: Callable[[], object]) -> int:
    """The id of a child that does the work; this process itself never does, and has no threads."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def ended(child: int) -> bool:
    """Whether a child is over, without taking its exit code away from `finished`."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, child, flags) is not None


def finished(child: int) -> bool:
    """Whether a child has ended well."""
    return os.waitpid(child, 0)[1] == 0


def kill_at_random(job: Job, times: int, rng: random.Random, home: Path) -> Counter[str]:
    """How often the earlier and the new result were there after a kill."""
    old, new = home / "old", home / "new"
    for folder in (old, new):
        folder.mkdir()
        assert finished(forked(lambda folder=folder: job.before(folder)))
    begun = time.monotonic()
    assert finished(forked(lambda: job.run(new)))
    duration = time.monotonic() - begun
    counts: Counter[str] = Counter()
    number = 0
    while counts["killed"] < times:  # some runs end before the moment of their kill
        number += 1
        folder = home / "killed"
        shutil.copytree(old, folder)
        least = 0.0 if number % 2 else 0.75 * duration
        child, begun = forked(lambda folder=folder: job.run(folder)), time.monotonic()
        moment = begun + rng.uniform(least, 1.1 * duration)
        while not (over := ended(child)) and time.monotonic() < moment:
            time.sleep(0.001)
        if over:
            duration = 0.8 * (time.monotonic() - begun)  # the machine is quicker than it was
        else:
            os.kill(child, signal.SIGKILL)
        counts["ended before" if finished(child) else "killed"] += 1
        left = {path.name for path in folder.iterdir()} - {path.name for path in new.iterdir()}
        counts["with drafts left"] += bool(left)
        for state, expected in (("earlier result", old), ("new result", new)):
            if finished(forked(lambda e=expected, f=folder: _same(job, e, f))):
                counts[state] += 1
                break
        else:
            raise AssertionError(f"neither result in {sorted(folder.rglob('*'))}")
        assert finished(forked(lambda folder=folder: job.run(folder))), "it does not go on"
        assert finished(forked(lambda f=folder: _same(job, new, f))), "it does not come to its end"
        shutil.rmtree(folder)
    return counts


def _same(job: Job, a: Path, b: Path) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        if job.result(a) != job.result(b):
            os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser("killing", description=str(__doc__).splitlines()[0])
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        inputs = Path(home) / "inputs"
        inputs.mkdir()
        job = JOBS[args.job](inputs)
        counts = kill_at_random(job, args.times, random.Random(args.seed), Path(home))
    print(f"{args.job}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
