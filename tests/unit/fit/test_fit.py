"""From scenes and photographs to matrices."""

import dataclasses
import json
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv.cli import main
from kd_cv.cli.fit import SHIPPED, choose, verdict
from kd_cv.descriptor.describer import describe_frames
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.extractor import Extractor
from kd_cv.fit.held_out import held_out_precision
from kd_cv.fit.photographs import fit_photos, split_photos
from kd_cv.fit.scenes import Scene, View, kernel_part, scene_statistics
from kd_cv.keypoints import from_keypoints
from kd_cv.settings import Settings
from kd_cv.whitening.files import load, save
from kd_cv.whitening.statistics import Statistics

SETTINGS = Settings(magnification=12.0, whitening=None)
SPEC = SETTINGS.spec


@pytest.fixture(scope="module")
def folder(photographs, tmp_path_factory):
    """Five photographs, of which the fourth is held out, a broken one, and another file."""
    where = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(("coffee", "chelsea", "coins", "brick", "rocket")):
        cv2.imwrite(str(where / f"{number}-{name}.png"), photographs[name])
    (where / "0-broken.jpg").write_bytes(b"no picture")
    (where / "phone.mov").write_bytes(b"no picture")
    return where


@pytest.fixture(scope="module")
def scene(photographs, similarity):
    turned, moved = similarity
    image = photographs["coins"]
    copy, M = turned(image, 10.0)
    frames = from_keypoints(cv2.SIFT_create(200).detect(image, None))
    outside = [[9000.0, 9000.0, 5.0, 0.0]]
    # The first frame of one view and the last of the other cannot be described.
    views = (
        View(image, np.concatenate([outside, frames]), np.arange(len(frames) + 1)),
        View(copy, np.concatenate([moved(frames, M), outside]), np.arange(1, len(frames) + 2)),
    )
    return Scene("coins", views)


def test_statistics_of_scenes_are_those_of_their_descriptors(scene):
    rows = [describe_frames(v.load(), v.frames, SPEC, magnification=12.0) for v in scene.views]
    a, b = rows[0][1:], rows[1][:-1]
    n = len(a)
    expected = Statistics(SPEC.dim)
    pairs = np.stack([np.arange(n), n + np.arange(n)], axis=1)
    expected.update(np.concatenate([a, b]), pairs).update(np.concatenate([a, b]), pairs)
    empty = Scene("nothing", ())
    found = scene_statistics([scene, empty, scene], Extractor(SETTINGS).describe, SPEC.dim)
    assert (found.count, found.pair_count) == (4 * n, 2 * n)
    assert np.allclose(found.C, expected.C, atol=1e-12)
    assert np.allclose(found.C_M, expected.C_M, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scales", [(1.0,), (0.7, 1.4)])
def test_parts_of_the_concatenation_are_the_other_descriptors(camera, keypoints, kernel, scales):
    frames = from_keypoints(keypoints)
    X, expected = (
        describe_frames(camera, frames, Spec(32, k), magnification=12.0, scales=scales)
        for k in ("concat", kernel)
    )
    assert np.allclose(kernel_part(X, SPEC, kernel), expected, atol=2e-6)


@pytest.mark.parametrize("change", [{"upright": True}, {"scales": (0.7, 1.0, 1.4)}])
def test_other_settings_have_statistics_of_their_own(scene, change):
    plain, other = (
        scene_statistics([scene], Extractor(settings).describe, SPEC.dim)
        for settings in (SETTINGS, dataclasses.replace(SETTINGS, **change))
    )
    assert plain.count == other.count and not np.allclose(plain.mean, other.mean, atol=1e-4)


def test_which_photographs_are_held_out():
    paths = [Path(str(i)) for i in range(12)]
    training, held_out = split_photos(paths)
    assert held_out == [paths[4], paths[9]] and len(training) == 10
    assert split_photos(paths[:3]) == (paths[:2], paths[2:3])
    assert split_photos(paths[:1]) == (paths[:1], [])


def test_photographs_without_pairs(folder):
    with pytest.warns(UserWarning, match="skipped.*broken"):
        entries = fit_photos(folder, "none", max_keypoints=150)
    assert sorted(entries) == [("cart", 32), ("concat", 32), ("polar", 32)]
    for whitening in entries.values():
        assert not whitening.has("ws") and whitening.has("wus")
        assert whitening.provenance["pairs"] == 0
        assert whitening.provenance["fitted_on"] == "5 photographs"
        for variant in ("w", "wua", "wus", "pcasqrt"):
            assert np.isfinite(whitening.projection(variant).A).all()


@pytest.mark.slow
def test_a_fit_can_be_repeated(folder, tmp_path):
    photos = sorted(folder.glob("[012]-*.png"))
    for name in ("a", "b"):
        entries = fit_photos(photos, max_keypoints=200, kernels=["cart"], patch_sizes=(32, 48))
        save(tmp_path / f"{name}.npz", entries)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert set(load(tmp_path / "a.npz")) == {("cart", 32), ("cart", 48)}


def test_too_little_to_fit_on(folder, tmp_path):
    one = [next(folder.glob("*coins*"))]
    with pytest.raises(ValueError, match=r"100 keypoints .* more than 238"):
        fit_photos(one, "none", max_keypoints=100)
    with pytest.raises(ValueError, match="matching pairs"):
        fit_photos(one, "warp", max_keypoints=200, views=2, kernels=["cart"])
    with pytest.raises(ValueError, match="no photographs"):
        fit_photos([])
    with pytest.raises(ValueError, match="none of the 1"), pytest.warns(UserWarning):
        fit_photos(list(folder.glob("*broken*")))
    with pytest.raises(ValueError, match="pairs must be"):
        fit_photos(folder, "guess")  # type: ignore[arg-type]
    blank = tmp_path / "blank.png"
    cv2.imwrite(str(blank), np.full((200, 200), 128, np.uint8))
    with pytest.raises(ValueError, match="0 keypoints can be described"):
        fit_photos([blank], "none")


@pytest.mark.slow
def test_the_command_fits_matrices_that_beat_raw_descriptors(folder, tmp_path, capsys, camera):
    output = tmp_path / "mine.npz"
    command = ["fit", str(folder), "-o", str(output), "--max-keypoints", "600", "--no-train"]
    assert main(command) == 0
    captured = capsys.readouterr()
    warned = [line for line in captured.err.splitlines() if line.startswith("kd-cv: warning")]
    assert len(warned) == 1 and "broken" in warned[0]
    assert "1 other file is not read: 1 .mov" in captured.out
    last = captured.out.splitlines()[-1]
    assert ("use KDDescriptor(" in last) != ("keep the shipped ones" in last)
    kd = KDDescriptor(weights=str(output), whitening="ws")
    assert kd.detectAndCompute(camera, None)[1].shape[1] == 128
    assert set(load(output)) == {(kernel, 32) for kernel in KERNELS}
    assert [p.name for p in tmp_path.iterdir()] == ["mine.npz"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    ap = found["precision"]
    assert ap["mine ws"] > ap["raw"] + 2 and ap["mine wus"] > ap["raw"]
    assert found["better"] == (ap[f"mine {found['best']}"] > ap[SHIPPED])
    assert found["held_out"] == 1 and found["provenance"]["pairs"] > 1000


@pytest.mark.slow
def test_the_trained_projection_is_of_the_concatenation(folder):
    photos = sorted(folder.glob("[012]-*.png"))
    entries = fit_photos(photos, max_keypoints=300, kernels=["concat", "cart"])
    assert entries["concat", 32].has("wm") and not entries["cart", 32].has("wm")
    assert entries["concat", 32].provenance["trained_on"]["scenes"] == 3


@pytest.mark.parametrize(("mine", "best", "better"), [(50.0, "ws", True), (40.0, "wua", False)])
def test_the_verdict_is_one(fitted, mine, best, better):
    precision = {"raw": 30.0, SHIPPED: 45.0, "mine wm": 1.0, "mine ws": mine, "mine wua": 41.0,
                 "mine wus": 2.0}  # fmt: skip
    assert choose(precision, fitted) == (best, better)
    said = verdict(better, "CALL")
    assert ("CALL" in said) == better and ("keep the shipped" in said) == (not better)
    assert choose({}, fitted) == ("wm", None) and "not tested" in verdict(None, "CALL")


def test_precision_of_held_out_photographs(folder):
    paths = [next(folder.glob("*coins*")), next(folder.glob("*broken*"))]
    with pytest.warns(UserWarning, match="broken"):
        found, tested = held_out_precision(paths, {"raw": SETTINGS})
    assert tested == 1 and 10 < found["raw"] < 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["EMPTY", "-o", "a.npz"], "holds no photographs"),
        (["FOLDER", "-o", "a.txt"], "unknown kind of file, expected .npz"),
        (["FOLDER", "-o", "a.npz", "--pairs", "guess"], "'guess' is not one of"),
        (["FOLDER", "-o", "a.npz", "--patch-size", "3"], "patch_size"),
        (["FOLDER", "-o", "a.npz", "--max-keypoints", "20"], "are needed"),
    ],
)
def test_what_fit_refuses(folder, tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    names = {"EMPTY": "empty", "MISSING": "missing", "FOLDER": str(folder)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["fit", *(names.get(a, a) for a in arguments)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1 and words in errors[0]
    assert not list(tmp_path.glob("*.npz"))
