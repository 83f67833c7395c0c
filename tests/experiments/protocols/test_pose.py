"""Relative pose: the files of cameras, the angles, and the estimate of a scene by hand."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from experiments.__main__ import main
from experiments.protocols.cameras import CameraView, read_cameras
from experiments.protocols.candidates import make_candidates
from experiments.protocols.pairs import Measure
from experiments.protocols.pose import (
    direction_angle,
    pose_scores,
    relative,
    relative_pose,
    rotation_angle,
    viewing_angle,
)

K = np.array([[400.0, 0, 159.5], [0, 400.0, 119.5], [0, 0, 1]])


def turn(degrees, axis=(0, 1, 0)):
    return cv2.Rodrigues(np.radians(degrees) * np.array(axis, np.float64))[0]


def plane_view(image, R, t):
    """What the camera K, R, t sees of a picture that hangs at z = 2, two units wide."""
    height, width = image.shape
    pixel_to_plane = np.array([[2 / width, 0, -1], [0, 2 / width, -height / width], [0, 0, 2.0]])
    # X = (x, y, 2): the third row stands for z, which is 2 for every pixel.
    H = K @ (R @ pixel_to_plane + np.outer(t, [0, 0, 1.0]))
    return cv2.warpPerspective(image, H, (320, 240), borderMode=cv2.BORDER_REFLECT_101)


POSES = [(np.eye(3), np.zeros(3)), (turn(8), np.array([-0.35, 0.02, 0.1]))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory, photographs):
    folder = tmp_path_factory.mktemp("scene")
    for k, (R, t) in enumerate(POSES):
        view = plane_view(photographs["camera"], R, t)
        cv2.imwrite(str(folder / f"{k}.png"), view)
    return folder


def strecha(R, t, scale=1):
    """A camera for an image `scale` times as large."""
    half = (scale - 1) / 2
    enlarge = np.array([[scale, 0, half], [0, scale, half], [0, 0, 1.0]])
    rows = [*(enlarge @ K), np.zeros(3), *R.T, -R.T @ t]
    text = "\n".join(" ".join(f"{v:.12g}" for v in row) for row in rows)
    return f"{text}\n{320 * scale} {240 * scale}\n"


def write_cameras(folder, kind):
    folder.mkdir()
    if kind == "strecha":
        for k, pose in enumerate(POSES):
            (folder / f"{k}.png.camera").write_text(strecha(*pose, scale=3))
    elif kind == "poses":
        lines = [
            f"{k}.png " + " ".join(f"{v:.12g}" for v in np.concatenate([K.ravel(), R.ravel(), t]))
            for k, (R, t) in enumerate(POSES)
        ]
        (folder / "poses.txt").write_text("# name K R t\n" + "\n".join(lines) + "\n")
    else:
        (folder / "cameras.txt").write_text("# cameras\n1 PINHOLE 320 240 400 400 160 120\n")
        lines = ["# images"]
        for k, (R, t) in enumerate(POSES):
            v = cv2.Rodrigues(R)[0].ravel()
            angle = np.linalg.norm(v)
            axis = v / angle if angle else v
            q = [np.cos(angle / 2), *(np.sin(angle / 2) * axis), *t]
            lines += [f"{k + 1} " + " ".join(f"{x:.12g}" for x in q) + f" 1 {k}.png", ""]
        (folder / "images.txt").write_text("\n".join(lines) + "\n")
        (folder / "points3D.txt").write_text("")
    return folder


@pytest.mark.parametrize("kind", ["strecha", "poses", "colmap"])
def test_every_format_gives_the_same_cameras(kind, photos, tmp_path):
    if kind == "colmap":
        pytest.importorskip("pycolmap")
    views = read_cameras(photos, write_cameras(tmp_path / "cameras", kind))
    assert [view.image.name for view in views] == ["0.png", "1.png"]
    for view, (R, t) in zip(views, POSES, strict=True):
        np.testing.assert_allclose(view.K, K, atol=1e-6)
        np.testing.assert_allclose(view.R, R, atol=1e-6)
        np.testing.assert_allclose(view.t, t, atol=1e-6)


def test_a_binary_model_of_colmap_itself(photos, tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    text = write_cameras(tmp_path / "text", "colmap")
    (tmp_path / "binary").mkdir()
    pycolmap.Reconstruction(text).write_binary(tmp_path / "binary")
    found = read_cameras(photos, tmp_path / "binary")
    for view, other in zip(found, read_cameras(photos, text), strict=True):
        np.testing.assert_allclose(view.K, other.K)
        np.testing.assert_allclose(view.R, other.R, atol=1e-9)
        np.testing.assert_allclose(view.t, other.t, atol=1e-9)


def test_angles():
    assert rotation_angle(turn(33)) == pytest.approx(33)
    assert rotation_angle(np.eye(3)) == 0
    assert direction_angle(np.array([1.0, 0, 0]), np.array([-2.0, 0, 0])) == pytest.approx(0)
    assert direction_angle(np.array([1.0, 0, 0]), np.array([1.0, 1, 0])) == pytest.approx(45)
    a, b = (CameraView(Path("x"), K, turn(angle), np.zeros(3)) for angle in (10, 35))
    assert viewing_angle(a, b) == pytest.approx(25)


def test_the_pose_of_points_in_space(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform([-1, -1, 3], [1, 1, 6], (200, 3))
    views = [CameraView(tmp_path / "x", K, R, t) for R, t in POSES]
    points = []
    for view in views:
        x = (X @ view.R.T + view.t) @ K.T
        points.append(x[:, :2] / x[:, 2:])
    rows = np.eye(200, dtype=np.float32)
    features = list(zip(points, [rows, rows], strict=True))
    pair = pose_scores(*features, views, Measure(seeds=2))
    assert len(pair.errors) == 2 and max(pair.errors) < 0.1 and pair.others == {"inliers": 200}
    R, t = relative(*views)
    np.testing.assert_allclose(X @ views[1].R.T + views[1].t,
                               (X @ views[0].R.T + views[0].t) @ R.T + t, atol=1e-12)  # fmt: skip
    # Half of the matches are wrong, and more of them than are right: others agree by chance.
    turned = points[1], rows[::-1].copy()
    assert pose_scores(features[0], turned, views, Measure(seeds=1)).errors[0] > 1
    few = [(x[:3], rows[:3]) for x in points]
    pair = pose_scores(*few, views, Measure(seeds=1))
    assert pair.errors == [np.inf] and pair.others == {"inliers": 0}


@pytest.mark.slow
def test_scores_of_a_command(photos, tmp_path, capsys):
    cameras = write_cameras(tmp_path / "cameras", "strecha")
    command = ["pose", str(photos), "--cameras", str(cameras), "--descriptor", "raw,sift"]
    assert main([*command, "--json", "--seeds", "2", "--against", "sift"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["pairs"] == 1 and len(content["scores"]) == 2
    raw = content["scores"][0]["values"]
    assert "auc10 gain" in raw
    for key in ("auc5", "auc10", "auc10 gain", "auc10 gain low"):  # the only pair is 0-15 apart
        assert raw[" ".join([key.split()[0], "0-15", *key.split()[1:]])] == raw[key]
    for score in content["scores"]:
        values = score["values"]
        assert values["inliers"] > 50 and values["pairs 0-15"] == 1
        assert values["auc5 low"] == values["auc5"] == values["auc5 high"]  # of one pair
        assert 0 <= values["auc5"] <= values["auc10"] <= values["auc20"] <= 100
    assert main([*command, "--cameras", str(cameras)]) == 2
    assert "1 scenes need as many --cameras, got 2" in capsys.readouterr().err


@pytest.mark.slow
def test_whole_pipelines_by_the_pose(photos, tmp_path, capsys):
    cameras = write_cameras(tmp_path / "cameras", "strecha")
    command = ["pipelines", str(photos), "--cameras", str(cameras), "--json"]
    command += ["--pipelines", "kd,sift", "--max-keypoints", "500", "--seeds", "2"]
    assert main([*command, "--against", "sift"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["pairs"] == 1
    assert [score["name"] for score in content["scores"]] == ["kd", "sift"]
    for score in content["scores"]:
        values = score["values"]
        assert values["inliers"] > 50 and values["ms"] > 0 and 0 < values["keypoints"] <= 500
        assert 0 <= values["auc5"] <= values["auc10"] <= values["auc20"] <= 100
    kd, sift = (score["values"] for score in content["scores"])
    assert kd["auc10 gain"] == pytest.approx(kd["auc10"] - sift["auc10"])


def test_pairs_are_chosen_and_told_apart_by_their_angle(photos):
    turned = [
        CameraView(photos / f"{k % 2}.png", K, turn(angle), np.zeros(3))
        for k, angle in enumerate((0, 20, 75, 165))
    ]
    for largest, parts in {
        60: {"15-30": 1, "30-60": 1},
        90: {"15-30": 1, "30-60": 1, "60-90": 2},
    }.items():
        (score,) = relative_pose(
            [("turned", turned)], make_candidates(["sift"]), Measure(seeds=1), max_keypoints=50,
            max_angle=largest,
        )  # fmt: skip
        counted = {key: count for key, count in score.values.items() if key.startswith("pairs ")}
        assert counted == {f"pairs {part}": count for part, count in parts.items()}
        assert score.values["pairs"] == sum(parts.values())
    with pytest.raises(ValueError, match="max_angle must be positive and finite, got 0"):
        relative_pose([("turned", turned)], [], max_angle=0)
