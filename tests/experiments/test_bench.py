"""The benchmark runs for real on a tiny configuration; its structure is checked, never a time."""

import json
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

pytest.importorskip("skimage")

from experiments.benchmarks import bench as runner
from experiments.benchmarks import commands
from experiments.benchmarks.inputs import QUICK, Config
from experiments.benchmarks.sections import run

pytestmark = pytest.mark.slow

TINY = Config(
    rounds=2, seconds=0.0, processes=1, keypoints=(30, 60), growth=(20, 40, 60),
    stage_keypoints=60, batch=8, memory_keypoints=500, images=((120, 160, 40), (150, 200, 0)),
    large_images=((240, 320, 40), (240, 320, 0)), large_rounds=1, feature_image=(120, 160, 40),
)  # fmt: skip
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def rows_of(name, **more):
    """The rows of one section, by name."""
    report = run(TINY, only=[name], **more)
    (part,) = report.parts
    assert (part.name, part.skipped, part.failed) == (name, "", "")
    assert str(report).count("\n") >= len(part.rows) + len(report.header)
    return {row.name: row for row in part.rows}


def ratio(row):
    assert row.unit == "x" and row.against.median > 0 and row.kd_cv.median > 0
    assert row.result.low <= row.result.median <= row.result.high
    return row.result.median


LONG = [("feature", 1), ("kornia", 5), ("module", 6), ("growth", 6), ("start", 4)]


@pytest.mark.parametrize(
    ("section", "count"),
    [("stages", 21), *(pytest.param(*row, marks=pytest.mark.nightly) for row in LONG)],
)
def test_a_section_has_as_many_rows(section, count):
    pytest.importorskip("kornia")
    rows = rows_of(section)
    assert len(rows) == count
    assert all(np.isfinite(row.result.median) for row in rows.values())


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="no getrusage")
def test_the_whole_command_is_measured_from_outside(monkeypatch):
    pytest.importorskip("typer")
    monkeypatch.setattr(commands, "WAYS", {"kd-cv match": ()})
    of_the_parent = np.ones(10**9, np.uint8)
    rows = rows_of("match")
    del of_the_parent
    assert list(rows) == ["kd-cv match, 320 x 240"]
    assert all(row.unit == "s" and row.result.median > 0.1 for row in rows.values())
    assert all(50 < float(row.note.removesuffix(" MB")) < 900 for row in rows.values())


@pytest.mark.nightly
def test_the_column_without_avx512_is_of_the_same_rows():
    report = run(QUICK, only=["threads"])
    rows = runner.with_avx2(report, ["threads", "--quick"]).parts[0].rows
    assert [row.name for row in rows] == [row.name for row in report.parts[0].rows]
    assert all(row.avx2.median > 0 and row.avx2 != row.result for row in rows)


def test_without_avx512_compiled_code_has_none_of_its_registers(tmp_path):
    code = """if True:
        import numpy as np
        from kd_cv import KDDescriptor
        from kd_cv.descriptor import compiled
        image = np.random.default_rng(0).integers(0, 256, (99, 99), dtype=np.uint8)
        KDDescriptor().detectAndCompute(image, None)
        print("".join(compiled.spatial_sums.inspect_asm().values()))"""
    environment = {**os.environ, **runner.AVX2, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert b"ymm" in done.stdout and b"zmm" not in done.stdout, done.stderr


def test_the_command_prints_one_object(monkeypatch, capsys):
    monkeypatch.setattr(runner, "QUICK", TINY)
    monkeypatch.setattr(cv2, "checkHardwareSupport", lambda feature: False)
    assert runner.main(["growth", "--quick", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"machine", "versions", "threads"} <= set(printed["header"])
    assert [part["name"] for part in printed["parts"]] == ["growth"]
    with pytest.raises(SystemExit, match="2"):
        runner.main(["nothing"])
    assert (
        "unknown section 'nothing': expected one of detector, detector-large, detector-memory"
        in capsys.readouterr().err
    )
