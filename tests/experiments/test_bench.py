"""The benchmark runs for real on a tiny configuration; its structure is checked, never a time."""

import json
import sys

import cv2
import numpy as np
import pytest

pytest.importorskip("skimage")

from experiments.benchmarks import bench as runner
from experiments.benchmarks import commands, sections
from experiments.benchmarks.compute import line
from experiments.benchmarks.detect import features_of
from experiments.benchmarks.fresh import in_new_process
from experiments.benchmarks.inputs import Config, load_inputs
from experiments.benchmarks.measure import Row, Spread, Target, take_turns, threads
from experiments.benchmarks.sections import SECTIONS, run
from kd_cv.parallel import cores

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
    assert row.unit == "x" and row.against.median > 0 and row.ours.median > 0
    assert row.result.low <= row.result.median <= row.result.high
    return row.result.median


def test_sift_has_a_row_for_every_count_thread_size_and_scale():
    rows = rows_of("sift")
    assert len(rows) == 2 * len({cores(), 1}) * 2 * 2
    assert all(ratio(row) > 0 for row in rows.values())
    assert "60 keypoints, 1 thread, P = 64, 3 scales" in rows


def test_detector_has_a_row_for_every_image_thread_rival_and_call():
    rows, rivals = rows_of("detector"), len(features_of(40)) - 1
    assert rivals >= 2 and len(rows) == 2 * len({cores(), 1}) * rivals * 3
    assert all(ratio(row) > 0 for row in rows.values())
    row = rows["cv2.SIFT, detectAndCompute, 160 x 120, 40, 1 thread"]
    assert row.note.startswith("KD 40, cv2.SIFT 4")
    assert "cv2.ORB, detect, 200 x 150, all, 1 thread" in rows
    assert "cv2.SIFT, compute, 320 x 240, all, 1 thread" in rows_of("detector-large")


def test_detector_stages_have_floors_and_shares():
    pytest.importorskip("numba")
    rows = rows_of("detector-stages")
    parts = [row for name, row in rows.items() if name.startswith("160 x 120, 40: ")]
    *stages, whole = parts
    assert len(rows) == 2 * len(parts) and whole.name.endswith(": detect")
    assert sum(row.unit == "x" for row in stages) == 5
    assert all(row.ours.median > 0 and row.note.endswith("% of detect") for row in stages)
    assert "40 keypoints" in whole.note


@pytest.mark.parametrize(
    ("section", "count"),
    [("feature", 1), ("kornia", 5), ("module", 6), ("growth", 6), ("start", 4), ("stages", 23)],
)
def test_a_section_has_as_many_rows(section, count):
    pytest.importorskip("kornia")
    rows = rows_of(section)
    assert len(rows) == count
    assert all(np.isfinite(row.result.median) for row in rows.values())


@needs_proc
def test_detector_memory_is_measured_apart():
    (row,) = rows_of("detector-memory").values()
    assert row.of_bytes and ratio(row) > 0


@pytest.mark.slow
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


@pytest.mark.skipif(cores() < 2, reason="one core")
def test_threads_compares_one_with_two_and_leaves_the_setting_alone():
    before = cv2.getNumThreads()
    rows = rows_of("threads")
    assert cv2.getNumThreads() == before
    assert [row.target for row in rows.values()] == [Target(1.7), Target(1.7), None]
    assert all(ratio(row) > 0 for row in rows.values())


def test_a_line_is_found_again():
    n = np.array([100, 1000, 5000])
    assert line(n, 0.002 + 3e-5 * n) == pytest.approx((0.002, 3e-5))


def test_the_plain_module_gives_the_same_without_the_fused_path(monkeypatch):
    torch = pytest.importorskip("torch")
    from experiments.benchmarks.modules import plain_module
    from kd_cv.nn import module

    patches = torch.from_numpy(load_inputs().patches(4, 32))[:, None]
    expected = module.KDModule(32, whitening=None)(patches)

    def refuse(*_):
        raise AssertionError("the fused path was taken")

    monkeypatch.setattr(module, "describe_patches", refuse)
    torch.testing.assert_close(plain_module(32)(patches), expected, atol=1e-5, rtol=0)


@needs_proc
def test_memory_is_beyond_image_and_output():
    peak, once = rows_of("memory").values()
    assert peak.unit == once.unit == "MB"
    assert peak.result.median < 100
    assert once.result.median > 1


@needs_proc
def test_module_memory_is_measured_apart():
    pytest.importorskip("kornia")
    answer = in_new_process("module_memory", rival=False, gradients=True, patch_size=32, batch=512)
    # The gradient of the patches alone has 2 MB.
    assert 2e6 < answer["peak"] < 2e9


def test_a_new_process_says_what_went_wrong():
    with pytest.raises(RuntimeError, match="first_call failed in a new process: FileNotFoundError"):
        in_new_process("first_call", folder="nowhere", count=1)


def test_stages_add_up_to_the_fused_path():
    pytest.importorskip("numba")
    from experiments.benchmarks.stages import operations, truncated
    from kd_cv.descriptor.compiled import STAGES
    from kd_cv.descriptor.describer import describe_frames
    from kd_cv.keypoints import from_keypoints

    inputs = load_inputs()
    for P in (31, 32):
        kd = inputs.descriptor(P)
        frames = from_keypoints(inputs.keypoints(50))
        describe, _ = truncated(inputs.image, frames, kd)
        expected = describe_frames(
            inputs.image,
            frames,
            kd.spec,
            magnification=kd.settings.side,
            projection=kd.projection,
        )
        assert not describe(len(STAGES) - 1).any()
        np.testing.assert_array_equal(describe(len(STAGES)), expected)
        assert tuple(operations(kd.spec, 128)) == STAGES


def test_turns_are_taken_forwards_and_backwards():
    order = []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    times = take_turns(works, rounds=3)
    assert "".join(order) == "ab" + "abbaab"
    assert all(len(values) == 3 for values in times.values())


def test_threads_are_given_back_after_an_error():
    before = cv2.getNumThreads()
    with pytest.raises(ZeroDivisionError), threads(1):
        assert cv2.getNumThreads() == 1
        raise ZeroDivisionError
    assert cv2.getNumThreads() == before


def test_targets_in_both_directions():
    result = Spread.of([1.0, 2.0, 30.0])
    assert (result.median, Target(2.0).met(result), Target(2.1).met(result)) == (2.0, True, False)
    assert Target(2.0, at_most=True).met(result) and not Target(1.9, at_most=True).met(result)


def test_a_missing_extra_skips_its_section_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "kornia.feature", None)
    monkeypatch.setitem(sys.modules, "kornia", None)
    kornia, growth = run(TINY, only=["kornia", "growth"]).parts[::-1]
    assert "pip install 'kd-cv[torch]'" in kornia.skipped and not kornia.rows
    assert growth.rows and not growth.skipped


def test_an_error_ends_its_section_only(monkeypatch):
    def broken(inputs, config, say):
        yield Row("before", Spread.of([1.0]))
        raise ZeroDivisionError("on purpose")

    monkeypatch.setitem(SECTIONS, "sift", sections.Section("title", broken))
    report = run(TINY, only=["sift", "growth"])
    assert report.failed
    assert [row.name for row in report.parts[0].rows] == ["before"]
    assert report.parts[0].failed == "ZeroDivisionError: on purpose"
    assert report.parts[1].rows


def test_a_photograph_of_ones_own_with_fewer_keypoints(tmp_path, camera):
    path = tmp_path / "small.png"
    cv2.imwrite(str(path), camera[:100, :100])
    rows = rows_of("sift", image=path)
    found = len(load_inputs(path).keypoints(1000))
    assert found > 0
    assert all(f"{min(60, found)} key" in name or "30 key" in name for name in rows)
    cv2.imwrite(str(path), np.zeros((50, 50), np.uint8))
    with pytest.raises(ValueError, match=r"no keypoint in small\.png"):
        run(TINY, image=path)


def test_the_command_prints_one_object(monkeypatch, capsys):
    monkeypatch.setattr(runner, "QUICK", TINY)
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


# Machines on which something cannot be measured ---------------------------------------------------
