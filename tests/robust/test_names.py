"""Names that are not UTF-8, as Linux allows: Python holds them as lone surrogates."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv.whitening import save

ODD = os.fsdecode(b"s\xff")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have no such names of files"
)


def in_a_process(program, folder):
    """What a program prints; it may crash."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=folder,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, (run.returncode, run.stderr)
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".yml", ".xml", ".json", ".yml.gz"])
def test_settings_in_a_file_of_such_a_name(tmp_path, suffix):
    program = f"""
        from kd_cv import KDDescriptor
        name = {ODD + suffix!r}
        KDDescriptor(patch_size=24, scales=3).write(name)
        KDDescriptor(patch_size=24, scales=3).write("plain{suffix}")
        kd = KDDescriptor()
        kd.read(name)
        print(kd.settings.patch_size, kd.settings.scales)
    """
    assert in_a_process(program, tmp_path) == "24 (0.625, 1.0, 1.6)\n"
    assert (tmp_path / (ODD + suffix)).read_bytes() == (tmp_path / f"plain{suffix}").read_bytes()


@pytest.mark.slow
def test_such_a_name_inside_settings_is_refused(tmp_path):
    program = f"""
        import cv2
        from kd_cv import KDDescriptor, Whitening
        import kd_cv.whitening.registry, shutil
        odd = {ODD!r}
        shutil.copy(kd_cv.whitening.registry.folder() / "multiview.npz", odd + ".npz")
        storage = cv2.FileStorage("", cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY)
        for call in (
            lambda: KDDescriptor().write("s.yml", odd),
            lambda: KDDescriptor().write(storage, odd),
            lambda: KDDescriptor(weights=odd + ".npz").write("s.yml"),
        ):
            try:
                call()
            except ValueError as error:
                print(error)
    """
    lines = in_a_process(program, tmp_path).splitlines()
    assert len(lines) == 3 and all("that UTF-8 can hold, got 's\\udcff" in line for line in lines)
    assert not (tmp_path / "s.yml").exists()


def test_matrices_in_a_file_of_such_a_name(tmp_path, fitted, camera, keypoints):
    path = tmp_path / f"{ODD}.npz"
    save(path, {("concat", 32): fitted})
    rows = KDDescriptor(weights=path).compute(camera, keypoints)[1]
    assert np.array_equal(rows, KDDescriptor(weights=fitted).compute(camera, keypoints)[1])


@pytest.mark.slow
@pytest.mark.parametrize("output", [f"{ODD}.png", f"{ODD}.jpg", f"m.p{ODD}"])
def test_a_picture_of_such_a_name(tmp_path, output):
    pytest.importorskip("typer")
    program = f"""
        import os
        from kd_cv.cli import main
        print(main(["match", "-o", {output!r}]), os.path.exists({output!r}))
    """
    result = in_a_process(program, tmp_path).splitlines()[-1]
    assert result == ("2 False" if output.startswith("m.p") else "0 True")


def test_a_photograph_of_such_a_name(tmp_path, camera):
    import cv2

    from kd_cv.io.images import read_gray

    path = tmp_path / f"{ODD}.png"
    path.write_bytes(cv2.imencode(".png", camera)[1].tobytes())
    assert np.array_equal(read_gray(path), camera)


@pytest.mark.slow
def test_what_the_terminal_cannot_show_is_no_error(tmp_path):
    pytest.importorskip("typer")
    pytest.importorskip("h5py")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "é.jpg").write_bytes(b"no photograph")
    run = subprocess.run(
        [sys.executable, "-c", "import sys; from kd_cv.cli import main; sys.exit(main())",
         "extract", "images", "-o", "f.h5"], cwd=tmp_path,
        capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert rb"skipped \xe9.jpg: " in run.stdout
