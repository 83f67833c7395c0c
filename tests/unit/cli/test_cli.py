"""The command line: what it prints, what it writes, and how it fails."""

import json
import os
import shutil
import subprocess
import sys

import cv2
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("skimage")

from kd_cv.cli import main, pair
from kd_cv.cli.pair import Pair, example_pair
from kd_cv.io.sources import read_source
from kd_cv.matching.metrics import homography_corner_error
from kd_cv.viz import palette

INLIER, OUTLIER = palette.rgb(palette.INLIER)[::-1], palette.rgb(palette.OUTLIER)[::-1]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The example as files, and their true homography."""
    folder = tmp_path_factory.mktemp("photos")
    image0, image1, H_true = example_pair()
    paths = [str(folder / name) for name in ("a.png", "b & c.png")]
    for path, image in zip(paths, (image0, image1), strict=True):
        cv2.imwrite(path, image)
    return *paths, H_true


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Two images with nothing in common."""
    folder = tmp_path_factory.mktemp("strangers")
    rng = np.random.default_rng(0)
    paths = [str(folder / name) for name in ("a.png", "b.png")]
    for path in paths:
        noise = rng.integers(0, 255, (60, 60)).astype(np.uint8)
        cv2.imwrite(path, cv2.resize(noise, (240, 240), interpolation=cv2.INTER_CUBIC))
    return paths


def _near(picture, color, tolerance=40):
    return int((np.abs(picture.astype(int) - color).max(axis=2) < tolerance).sum())


def _fails(capsys, *arguments, code=2):
    """The one line that a command fails with."""
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


@pytest.mark.slow
def test_example_ends_with_a_picture_and_says_where(tmp_path, capsys):
    path = tmp_path / "matches.png"
    assert main(["match", "-o", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(f"picture: {path}")
    for word in ("keypoints", "matches", "inliers", "detect", "describe", "homography", "H_0to1"):
        assert word in out
    picture = cv2.imread(str(path))
    assert picture.shape[1] > picture.shape[0] > 700
    assert _near(picture, INLIER) > 10 * _near(picture, OUTLIER) > 0
    assert [p.name for p in tmp_path.iterdir()] == ["matches.png"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kd", "sift", "rootsift"])
def test_json_of_photographs(photos, capsys, name):
    a, b, H_true = photos
    assert main(["match", a, b, "--descriptor", name, "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert captured.err == ""
    assert found["descriptor"] == name and found["success"] is True
    assert len(found["keypoints"]) == 2 and min(found["keypoints"]) > 500
    assert 100 < found["inliers"] < found["matches"]
    assert homography_corner_error(np.array(found["H_0to1"]), H_true, (512, 512)) < 1
    assert found["seconds"] == pytest.approx(sum(found["steps"].values()), abs=1e-5)
    assert list(found["steps"]) == ["detect", "describe", "match", "geometry"]


@pytest.mark.slow
def test_compare_draws_a_row_for_each(photos, tmp_path, capsys):
    a, b, _ = photos
    one, three = tmp_path / "one.png", tmp_path / "three.png"
    assert main(["match", a, b, "-o", str(one), "--json"]) == 0
    capsys.readouterr()
    assert main(["match", a, b, "--compare", "--json", "-o", str(three)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["compare"]) == ["kd", "sift", "rootsift"]
    assert found["compare"]["kd"]["inliers"] == found["inliers"]
    assert len({tuple(row["keypoints"]) for row in found["compare"].values()}) == 1
    heights = [cv2.imread(str(path)).shape[0] for path in (one, three)]
    assert heights[1] > 1.8 * heights[0]
    assert main(["match", a, b, "--compare"]) == 0
    out = capsys.readouterr().out
    assert all(title in out for title in ("KD", "SIFT", "RootSIFT"))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".txt", ".npy", ".json"])
def test_homography_is_saved(photos, tmp_path, suffix, capsys):
    a, b, _ = photos
    path = tmp_path / f"H{suffix}"
    assert main(["match", a, b, "--save-homography", str(path), "--json"]) == 0
    if suffix == ".json":
        saved = np.array(json.loads(path.read_text())["H_0to1"])
    else:
        saved = np.load(path) if suffix == ".npy" else np.loadtxt(path)
    np.testing.assert_allclose(saved, json.loads(capsys.readouterr().out)["H_0to1"], rtol=1e-9)


@pytest.mark.slow
def test_report_from_the_command_line(photos, tmp_path, capsys):
    a, b, _ = photos
    path = tmp_path / "report.html"
    assert main(["match", a, b, "--report", str(path), "--max-keypoints", "300"]) == 0
    page = path.read_text()
    assert "b &amp; c.png" in page and os.path.dirname(b) not in page
    assert f"report: {path}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", pair.available())
def test_detectors_of_the_running_opencv(photos, name, capsys):
    a, b, _ = photos
    code = main(["match", a, b, "--detector", name, "--max-keypoints", "400", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["success"] else 1)
    assert 0 < min(found["keypoints"]) <= max(found["keypoints"]) <= 400


@pytest.mark.slow
def test_strangers_give_code_1_one_line_and_a_picture(strangers, tmp_path, capsys):
    picture, H = tmp_path / "m.png", tmp_path / "H.txt"
    arguments = ["match", *strangers, "-o", str(picture), "--save-homography", str(H)]
    assert main([*arguments, "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["success"] is False and found["H_0to1"] is None
    assert captured.err.startswith("kd-cv: no homography: ") and captured.err.count("\n") == 1
    assert picture.exists() and not H.exists()


@pytest.mark.parametrize("value", [0, 128])
def test_fewer_than_4_matches(tmp_path, capsys, value):
    path = tmp_path / "flat.png"
    cv2.imwrite(str(path), np.full((50, 40), value, np.uint8))
    assert main(["match", str(path), str(path), "--json", "-o", str(tmp_path / "m.png")]) == 1
    captured = capsys.readouterr()
    why = "it is too dark" if value == 0 else "it is flat"
    assert f"flat.png has no keypoints: {why}" in captured.err
    assert json.loads(captured.out)["keypoints"] == [0, 0]
    assert read_source(tmp_path / "m.png").pixels.size


@pytest.mark.slow
def test_bad_input_gives_one_line_and_code_2(photos, tmp_path, capsys):
    a, b, _ = photos
    text = tmp_path / "text.png"
    text.write_text("not an image")
    empty = tmp_path / "empty.png"
    empty.touch()
    out = tmp_path / "m.png"
    before = sorted(p.name for p in tmp_path.iterdir())
    assert "missing.png" in _fails(capsys, "match", tmp_path / "missing.png", b, "-o", out)
    assert "text.png is not an image" in _fails(capsys, "match", a, text, "-o", out)
    assert "empty.png is not an image" in _fails(capsys, "match", empty, b, "-o", out)
    assert "irectory" in _fails(capsys, "match", tmp_path, b, "-o", out)
    assert "expected two photographs" in _fails(capsys, "match", a)
    assert "is a directory" in _fails(capsys, "match", a, b, "-o", _png_folder(tmp_path))
    assert "cannot write in" in _fails(capsys, "match", a, b, "-o", tmp_path / "no" / "m.png")
    assert "cannot write in" in _fails(
        capsys, "match", a, b, "--report", tmp_path / "no" / "r.html"
    )
    assert "cannot write a picture" in _fails(capsys, "match", a, b, "-o", tmp_path / "m.xyz")
    assert "unknown kind of file" in _fails(capsys, "match", "--save-homography", tmp_path / "H.x")
    assert "overwritten" in _fails(capsys, "match", a, b, "-o", a)
    assert "surf" in _fails(capsys, "match", a, b, "--descriptor", "surf", "-o", out)
    assert "it has dog, sift" in _fails(capsys, "match", a, b, "--detector", "surf", "-o", out)
    assert "--ratio" in _fails(capsys, "match", a, b, "--ratio", "1.5")
    assert "--ratio" in _fails(capsys, "match", a, b, "--ratio", "many")
    assert "--threshold" in _fails(capsys, "match", a, b, "--threshold", "nan")
    assert "--max-keypoints" in _fails(capsys, "match", a, b, "--max-keypoints", "0")
    assert "nothing" in _fails(capsys, "match", a, b, "--weights", "nothing")
    assert "--weights is for" in _fails(
        capsys, "match", a, b, "--weights", "nothing", "--descriptor", "sift"
    )
    assert "--frobnicate" in _fails(capsys, "match", "--frobnicate")
    assert "mutch" in _fails(capsys, "mutch")
    assert sorted(p.name for p in tmp_path.iterdir()) == [*before[:1], "folder.png", *before[1:]]


def _png_folder(tmp_path):
    folder = tmp_path / "folder.png"
    folder.mkdir()
    return folder


def test_a_detector_of_the_other_opencv(photos, capsys, monkeypatch):
    monkeypatch.setitem(pair.FACTORIES, "akaze", "AKAZE_of_another_version")
    line = _fails(capsys, "match", *photos[:2], "--detector", "akaze")
    assert f"'akaze' is not in OpenCV {cv2.__version__}: it has dog, sift, orb, fast" in line


def test_debug_shows_the_traceback(photos):
    with pytest.raises(FileNotFoundError):
        main(["match", "missing.png", photos[1], "--debug"])
    with pytest.raises(FileNotFoundError):
        main(["--debug", "match", "missing.png", photos[1]])


def test_errors_of_our_own_have_another_code(photos, capsys, monkeypatch):
    from kd_cv.cli import match

    monkeypatch.setattr(match, "run", lambda *_: {}["bug"])
    assert "unexpected KeyError" in _fails(capsys, "match", *photos[:2], code=3)


# ----------------------------------------------------------------------------- the other commands


@pytest.mark.slow
def test_explain(photos, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    a, b, _ = photos
    path = tmp_path / "why.png"
    assert main(["explain", a, b, "-o", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(f"picture: {path}") and "similarity" in out
    assert cv2.imread(str(path)).std() > 20
    assert main(["explain", a, b, "--match", "1", "--json"]) == 0
    at = json.loads(capsys.readouterr().out)["frames"][0][:2]
    assert main(["explain", a, b, "--at", *(str(round(c)) for c in at), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    x, y, size, _ = found["frames"][0]
    assert np.hypot(x - at[0], y - at[1]) < 3 and size > 0
    assert found["inlier"] and 0.5 < found["similarity"] <= 1
    assert sum(found["shares"].values()) == pytest.approx(found["similarity"], abs=1e-6)


def test_extract(photos, tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    folder, output = os.path.dirname(photos[0]), tmp_path / "features.h5"
    arguments = ["extract", folder, "-o", str(output), "--max-keypoints", "100", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 2
    with h5py.File(output, "r") as file:
        assert file["a.png"]["keypoints"].shape == (100, 2)
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 2
    assert "missing" in _fails(capsys, "extract", tmp_path / "missing", "-o", output)
    assert "--output" in _fails(capsys, "extract", folder)
    # Other settings are refused, and accepted with --overwrite.
    arguments[5] = "50"
    assert "max_keypoints 100 there and 50 here" in _fails(capsys, *arguments)
    assert main([*arguments, "--overwrite"]) == 0
    with h5py.File(output, "r") as file:
        assert file["a.png"]["keypoints"].shape == (50, 2)


@pytest.mark.slow
def test_extract_options(photos, tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    listed, output = tmp_path / "list.txt", tmp_path / "features.h5"
    listed.write_text("b.png\nbroken.png\n")
    folder = tmp_path / "photographs"
    folder.mkdir()
    shutil.copy(photos[1], folder / "b.png")
    (folder / "broken.png").write_text("no picture")

    def run(*options):
        """The exit code, the summary, and the file."""
        shared = [str(listed), "-o", str(output), "--overwrite", "--max-keypoints", "30"]
        code = main(["extract", *shared, *options])
        with h5py.File(output, "r") as file:
            return code, capsys.readouterr(), {k: v[()] for k, v in file["b.png"].items()}

    code, (out, err), arrays = run("--root", str(folder), "--workers", "1")
    assert code == 1 and "1 of 2 images skipped" in out and "of 1 workers' time" in out
    assert "left" not in err  # progress is for terminals
    assert arrays["descriptors"].dtype == np.float16
    default = arrays["descriptors"]
    _, (out, err), arrays = run("--root", str(folder), "--dtype", "uint8", "--json")
    assert arrays["descriptors"].dtype == np.uint8
    assert json.loads(out)["skipped"].keys() == {"broken.png"} and err == ""
    _, _, arrays = run("--root", str(folder), "--weights", "hpatches")
    assert arrays["descriptors"].shape == default.shape
    assert not np.array_equal(arrays["descriptors"], default)
    _, _, arrays = run("--root", str(folder), "--descriptor", "sift", "--max-size", "200")
    sift = arrays["descriptors"].astype(float)
    assert np.allclose(np.linalg.norm(sift, axis=0), 512, atol=5)
    assert arrays["scales"].min() > 1.5  # in pixels of the larger file
    refused = _fails(
        capsys, "extract", folder, "-o", output, "--descriptor", "sift", "--weights", "x"
    )
    assert "--weights is for the descriptor kd" in refused


@pytest.mark.slow
def test_export(tmp_path, capsys):
    for module in ("torch", "onnxscript"):
        pytest.importorskip(module)
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "kd.onnx"
    arguments = ["export", "-o", str(path), "--patch-size", "16", "--kernel", "cart"]
    assert main([*arguments, "--whitening", "none"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"file: {path}")
    (output,) = onnxruntime.InferenceSession(path).get_outputs()
    assert output.shape[1] == 63
    assert "kernel 'toy'" in _fails(capsys, "export", "-o", path, "--kernel", "toy")
    assert "cannot write in" in _fails(capsys, "export", "-o", tmp_path / "no" / "kd.onnx")


def test_weights(tmp_path, capsys, monkeypatch):
    from kd_cv.whitening import registry as weights

    entry = {
        "file": "own.npz", "sha256": "0" * 64, "fitted_on": "[photographs]", "patches": 12345,
        "pairs": 678, "scenes": 9, "command": "kd-cv fit", "uses": {"patches": "concat 64"},
        "figures": {"FPR95": 6.5},
    }  # fmt: skip
    (tmp_path / "index.json").write_text(json.dumps({"own": entry}))
    monkeypatch.setattr(weights, "folder", lambda: tmp_path)
    assert main(["weights"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("own", "[photographs]", "12,345", "678", "FPR95: 6.5"))
    assert main(["weights", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"own": entry}
    monkeypatch.setattr(weights, "folder", lambda: tmp_path / "nowhere")
    assert "nowhere" in _fails(capsys, "weights")


@pytest.mark.slow
def test_installed_command_needs_no_torch(tmp_path):
    """The first command of the README, with torch and kornia out of reach."""
    program = (
        "import sys; sys.modules.update(torch=None, kornia=None, h5py=None, pycolmap=None)\n"
        "from kd_cv.cli import main; sys.exit(main(['match', '-o', 'matches.png']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (tmp_path / "matches.png").stat().st_size > 10_000


def test_without_the_extra_one_line_names_it():
    program = (
        "import sys; sys.modules.update(typer=None)\n"
        "from kd_cv.cli import main; sys.exit(main(['match']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'kd-cv[cli]'" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--focal", "-1"], "--focal must be positive and finite, got -1"),
        (["--max-size", "5"], "--max-size must be at least 16, got 5"),
        (["--model", "sphere"], "'sphere' is not one of 'auto', 'homography'"),
        (["--model", "essential"], "--model essential needs --focal"),
    ],
)
def test_options_of_a_match_are_checked(capsys, options, message):
    assert main(["match", *options]) == 2
    assert message in capsys.readouterr().err


def test_focal_lengths_of_a_pair():
    image = np.zeros((60, 80), np.uint8)
    names = ("a", "b")
    assert Pair(image, image, names, None, (1.5, 2.0)).cameras(None) == (120.0, 160.0)
    assert Pair(image, image, names, None, (1.5, None)).cameras(None) == (None, None)
    assert Pair(image, image, names, None, (1.5, 2.0)).cameras(70.0) == (70.0, 70.0)


def modules_after(*arguments):
    """The modules that a command has imported, in a process of its own."""
    program = (
        "import sys; from kd_cv.cli import main; main(sys.argv[1:])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_neither_opencv_nor_numba(option):
    loaded = modules_after(option)
    assert not {"cv2", "numba", "numpy", "scipy"} & {*loaded}
    assert len([name for name in loaded if name.startswith("kd_cv")]) < 8


@pytest.mark.slow
def test_an_extraction_imports_what_it_needs(photos, tmp_path):
    pytest.importorskip("h5py")
    loaded = modules_after("extract", os.path.dirname(photos[0]), "-o", tmp_path / "f.h5")
    ours = [name for name in loaded if name.startswith("kd_cv")]
    assert (tmp_path / "f.h5").exists() and len(ours) <= 50, ours
    for name in ("fit", "viz", "report", "matching", "explain", "nn", "cli.match"):
        assert not [module for module in ours if module.startswith(f"kd_cv.{name}")]
    assert not {"matplotlib", "torch", "distributed", "skimage"} & {*loaded}
