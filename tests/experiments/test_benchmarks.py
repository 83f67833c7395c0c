"""The studies in benchmarks/ run, on little, and print the tables they promise."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from collections_of_photographs import photographs
from skimage import data

from experiments.benchmarks import soak
from experiments.benchmarks.colmap import AtSIFT
from kd_cv import KDDescriptor

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(study: str, *arguments: object) -> str:
    command = [sys.executable, "-m", "experiments", study, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # FAISS's threads wait by spinning
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without the lines under their titles."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.nightly
def test_extraction(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are watched by Linux's /proc")
    folder = photographs(tmp_path / "images")
    text = run("extract", "--folder", folder, "--images", 8, 12, "--workers", 2)
    assert "one by one: decode" in text
    titles, eight, twelve = rows(text)
    assert titles[:4] == ["images", "images/s", "of ideal", "of 2 x seconds"]
    assert (eight[0], twelve[0]) == ("8", "12") and len(eight) == len(titles)
    assert float(eight[1]) > 0 and 100 < float(twelve[-1]) < 4000  # MB


def test_retrieval(tmp_path: Path) -> None:
    for module in ("h5py", "faiss"):
        pytest.importorskip(module)
    folder = photographs(tmp_path / "images")
    text = run("retrieval", folder, "--descriptors", 2000, "--queries", 100)
    _, flat, inverted = rows(text)
    assert flat[0] == "Flat" and float(flat[-1].rstrip("%")) > 95
    assert inverted[0] == "IVF128,SQ8" and float(inverted[1]) < float(flat[1])
    assert "2000 descriptors of 128" in text


def test_reconstruction(tmp_path: Path) -> None:
    for module in ("h5py", "pycolmap"):
        pytest.importorskip(module)
    scene = tmp_path / "scenes" / "apart"
    scene.mkdir(parents=True)
    for name in ("coffee", "brick"):
        cv2.imwrite(str(scene / f"{name}.png"), getattr(data, name)()[:200, :200])
    text = run("colmap", tmp_path / "scenes", "--descriptors", "kd", "sift")
    _, kd, sift = rows(text)
    assert kd[:4] == ["apart", "kd", "0 of 2", "0"] and sift[:2] == ["apart", "sift"]


def test_reconstructions_at_the_keypoints_of_sift_have_those() -> None:
    photograph = data.camera()
    found = {k.pt for k in cv2.SIFT_create(200).detect(photograph, None)}
    frames = AtSIFT(KDDescriptor(), 200).features(photograph).frames
    assert len(frames) > 100 and {(x, y) for x, y in frames[:, :2].tolist()} <= found


@pytest.mark.nightly
def test_callers() -> None:
    for module in ("torch", "distributed"):
        pytest.importorskip(module)
    options = ("--only", "detectAndCompute", "--calls", 4, "--rounds", 1)
    text = run("callers", *options, "--threads", 2, "--processes", 2, "--workers", 1)
    found = rows(text)
    ways = [row for row in found if row[-1] in ("equal", "DIFFERENT")]
    assert len(ways) >= 5 and {row[-1] for row in ways} == {"equal"}
    assert any("DataLoader" in row[0] for row in ways) and any("Dask" in row[0] for row in ways)
    assert "MB a process and" in text
    (pages,) = [row for row in found if len(row) == 3 and row[0] == "detectAndCompute"]
    assert float(pages[1]) < float(pages[2])


def test_soak_tells_what_grows_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    def lane(end: float, files: int) -> soak.Lane:
        memory = [(float(t), 100.0 if t < 30 else end) for t in range(60)]
        return soak.Lane(9, [], memory, [(1.0, soak.Held(5, 3, 0)), (59.0, soak.Held(files, 3, 0))])

    assert soak.report({"threads": lane(120, 5)}, minutes=1) == 0
    assert "nothing left behind" in capsys.readouterr().out
    assert soak.report({"threads": lane(160, 5)}, minutes=1) == 1
    assert "TOO MUCH" in capsys.readouterr().out
    assert soak.report({"threads": lane(120, 6)}, minutes=1) == 1
    assert "LEFT BEHIND" in capsys.readouterr().out
    wrong = soak.Lane(9, ["detect large"])
    assert soak.report({"forked": wrong}, minutes=1) == 1
    if Path("/proc/self/fd").is_dir():
        before = soak.held()
        with open(os.devnull):
            assert soak.held().files == before.files + 1


@pytest.mark.nightly
def test_lafs() -> None:
    pytest.importorskip("kornia")
    titles, floats, eight_bits, kornias = rows(run("lafs", "--keypoints", 200))
    assert titles[1:] == ["same nearest neighbour", "worst photograph"]
    # The float rows are the same numbers; OpenCV's 8-bit pyramid rounds.
    assert float(floats[2].rstrip("%")) > 99.5 and float(eight_bits[1].rstrip("%")) > 97
    assert float(kornias[1].rstrip("%")) > 50


@pytest.fixture(scope="module")
def sequences(tmp_path_factory) -> Path:
    """A folder with one sequence, as HPatches has them: a photograph and two warps of it."""
    folder = tmp_path_factory.mktemp("sequences")
    (folder / "v_coffee").mkdir()
    image = cv2.cvtColor(data.coffee()[:300, :400], cv2.COLOR_RGB2GRAY)
    cv2.imwrite(str(folder / "v_coffee/1.png"), image)
    for k, turn in ((2, 10), (3, -15)):
        H = np.vstack([cv2.getRotationMatrix2D((200, 150), turn, 0.9), [0, 0, 1]])
        warped = cv2.warpPerspective(image, H, (400, 300))
        cv2.imwrite(str(folder / f"v_coffee/{k}.png"), warped)
        np.savetxt(folder / f"v_coffee/H_1_{k}", H)
    return folder


def test_windows(sequences: Path) -> None:
    titles, fast, mser = rows(
        run("windows", sequences, "--detectors", "fast", "mser", "--keypoints", 200)
    )
    assert titles[:6] == ["detector", "SIFT", "known", "alone", "best fixed", "elsewhere"]
    assert [fast[0], mser[0]] == ["fast", "mser"] and len(fast) == len(titles)
    # FAST's window is 6.4 of its sizes, known or not, which lies between two of the columns.
    assert fast[2] == fast[3]
    assert float(fast[2]) == pytest.approx(float(fast[titles.index("6")]), abs=5)
    assert float(fast[4]) == max(map(float, fast[6:])) > 10


def test_settings(sequences: Path) -> None:
    arguments = "--keypoints", 200, "--seeds", 1, "--changes", "second angle"
    titles, *values, left_out = rows(run("settings", sequences, sequences, *arguments))
    assert titles[:3] == ["setting", "AUC 1 px", "AUC 3 px"] and titles[-1] == "chosen"
    assert [row[0] for row in values] == [
        "second angle 0.8 (default)", "second angle 0.85", "second angle 0.9"
    ]  # fmt: skip
    correct, places = titles.index("correct"), titles.index("places")
    assert all(float(row[correct]) > float(row[places]) > 20 for row in values)
    # Fewer second angles leave room for more places.
    assert float(values[2][correct]) - float(values[2][places]) < float(values[0][correct]) - float(
        values[0][places]
    )
    assert left_out[0] == "second angle, left out" and " to " in left_out[2]


def test_views(sequences: Path) -> None:
    scene = sequences / "v_coffee"
    folders = "--planes", sequences, "--scenes", scene
    found = rows(run("views", *folders, "--pairs", 1, "--sift"))
    assert found[0][2:6] == ["kd: plane", "kd: scene", "sift: plane", "sift: scene"]
    assert found[1][0] == f"plane {sequences.name}/v_coffee" and found[1][-1] == "0 of 1"
    assert found[2][0] == "scene v_coffee" and int(found[2][2]) > 20
    assert found.count(["0.1", "100.0 %", "0.0 %"]) == 2  # both are planes, one called a scene


def test_estimators(sequences: Path, tmp_path: Path) -> None:
    left, right, _ = data.stereo_motorcycle()
    lines = []
    for name, image, middle, x in (("0.png", left, 311.193, 0), ("1.png", right, 342.279, -1)):
        cv2.imwrite(str(tmp_path / name), cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
        K = np.array([[994.978, 0, middle], [0, 994.978, 254.877], [0, 0, 1]])
        lines.append(" ".join(map(str, [name, *K.ravel(), *np.eye(3).ravel(), x, 0, 0])))
    (tmp_path / "poses.txt").write_text("\n".join(lines))
    arguments = "--planes", sequences, "--cameras", tmp_path, tmp_path, "--seeds", 2
    found = rows(run("estimators", *arguments))
    assert found[0] == ["homography, AUC of the corner error", "pairs", "1", "3", "5", "10"]
    ours = [row for row in found if row[0] == "kd_cv.matching.two_view"]
    assert [row[1] for row in ours] == ["2", "1"]
    assert all(float(row[-1]) > 50 for row in ours)
    others = [row for row in found if row[0] in ("PoseLib", "pycolmap")]
    assert all(float(row[-1].split()[0]) > 50 and " to " in row[-1] for row in others)
    assert len(others) >= 2 * bool(importlib.util.find_spec("pycolmap"))
