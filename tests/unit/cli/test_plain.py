"""The command line reads well: help, errors, pipes, versions, files of matrices."""

import re

import numpy as np

import kd_cv
from kd_cv.cli import main
from kd_cv.whitening import save
from kd_cv.whitening.registry import resolve


def said(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_version_is_shown(capsys):
    assert said(capsys, "--version") == (0, f"kd-cv {kd_cv.__version__}\n", "")


def test_an_error_names_the_help_of_its_own_command(capsys):
    code, _, err = said(capsys, "match", "a.jpg", "b.jpg", "--ratio")
    assert code == 2 and "(kd-cv match --help shows how)" in err
    code, _, err = said(capsys, "--nothing")
    assert code == 2 and "(kd-cv --help shows how)" in err
    code, _, err = said(capsys, "mtach", "a.jpg")
    assert code == 2 and "(kd-cv --help shows how)" in err


def test_a_file_of_matrices_says_what_it_is(capsys, tmp_path):
    save(tmp_path / "mine.npz", {("concat", 32): resolve("multiview", "concat", 32)})
    code, out, _ = said(capsys, "weights", tmp_path / "mine.npz")
    assert code == 0
    for words in ("mine.npz: concat 32", "dimensions: 238", "ws", "fitted_on: 11 scenes"):
        assert words in out
    assert re.search(r"trained_on: \d+ patches, \d+ scenes", out)
    code, out, _ = said(capsys, "weights", tmp_path / "mine.npz", "--json")
    assert code == 0 and '"patch_size": 32' in out
    code, _, err = said(capsys, "weights", tmp_path / "yours.npz")
    assert code == 2 and "yours.npz: No such file" in err


def test_a_dark_photograph_is_named(capsys, tmp_path, camera):
    import cv2

    cv2.imwrite(str(tmp_path / "day.png"), camera)
    cv2.imwrite(str(tmp_path / "night.png"), np.zeros((200, 200), np.uint8))
    code, _, err = said(capsys, "match", tmp_path / "day.png", tmp_path / "night.png")
    assert code == 1
    assert err == (
        "kd-cv: no homography: night.png has no keypoints: it is too dark, "
        "99 of 100 pixels are at most 0 of 255\n"
    )


def test_code_is_compiled_before_the_clock_runs(camera, monkeypatch):
    """The first run says that it compiles, and its times leave that out."""
    from kd_cv.cli import pair

    seen, match = [], pair.match
    monkeypatch.setattr(pair, "match", lambda *a, **k: seen.append("match") or match(*a, **k))
    two = pair.Pair(camera[:200, :200], camera[:200, 20:220], ("a", "b"))
    answer = pair.run("kd", two, pair.Options(max_keypoints=200), seen.append)
    assert "compiling" in seen[0] and seen[1:] == ["match", "Matching with KD ...", "match"]
    assert len(answer.result.matches) and set(answer.seconds) >= {"detect", "match"}
