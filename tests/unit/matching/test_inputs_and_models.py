"""`match` in every form of an image, with every model, and what it says when nothing is found."""

import json
import pathlib
import re
import sys

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor, match
from kd_cv.collection import retrieval
from kd_cv.io import sources
from kd_cv.matching.refine import unit
from kd_cv.matching.two_view import WORDS


@pytest.fixture(scope="module")
def scene(photographs):
    """Two views of two walls, of which the right one is nearer: it moves 44 px, the left one 8."""
    far, near = photographs["camera"][:400, :300], photographs["astronaut"][:400, :300]
    image0 = np.hstack([far[:, 8:258], near[:, 44:294]])
    image1 = np.hstack([far[:, :250], near[:, :250]])
    return image0, image1


@pytest.fixture(scope="module")
def files(photographs, tmp_path_factory):
    """A photograph and its shifted copy, as files."""
    folder = tmp_path_factory.mktemp("photographs")
    image = photographs["astronaut"]
    paths = folder / "a.png", folder / "b.png"
    for path, start in zip(paths, (0, 20), strict=True):
        cv2.imwrite(str(path), image[start : start + 300, start : start + 300])
    return paths


def test_a_homography_sees_one_wall_and_a_scene_both(scene):
    plane = match(*scene, max_keypoints=1500)
    assert plane.model == "homography" and plane.success
    assert plane.F_0to1 is None and plane.R_0to1 is None
    whole = match(*scene, max_keypoints=1500, model="fundamental")
    assert whole.success and whole.H_0to1 is None
    assert whole.inliers.sum() > 1.3 * plane.inliers.sum()
    moved = (whole.points1 - whole.points0)[whole.inliers]
    assert (np.abs(moved[:, 0] - 8) < 3).any() and (np.abs(moved[:, 0] - 44) < 3).any()
    np.testing.assert_allclose(
        whole.errors(whole.points0, whole.points1)[whole.inliers], 0, atol=3.5
    )


def test_auto_takes_the_scene_here_and_the_plane_there_and_says_so(scene, files):
    both = match(*scene, max_keypoints=1500, model="auto")
    assert both.model == "fundamental" and "on the epipolar line" in repr(both)
    shifted = match(*files, model="auto")
    assert shifted.model == "homography" and "on the plane" in repr(shifted)
    np.testing.assert_allclose(shifted.H_0to1[:2, 2] / shifted.H_0to1[2, 2], [-20, -20], atol=0.5)


@pytest.mark.parametrize(
    ("model", "where"), [("homography", "the plane"), ("fundamental", "the epipolar line")]
)
def test_picture_and_report_have_the_words_of_the_model(scene, model, where):
    pytest.importorskip("matplotlib")
    from kd_cv.report import page_of

    kd = KDDescriptor(400)
    found = match(*scene, kd, model=model)
    inside, outside = f"on {where}", f"off {where}"
    assert WORDS[found.model] == (inside, outside)  # what the legend of the picture is given
    colours = [cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) for image in scene]
    page = page_of(colours, ("left", "right"), {"KD": (found, kd)})
    words = re.search(r'"words": ?(\[.*?\])', page)
    assert words and json.loads(words[1]) == [f"inliers {inside}", f"outliers {outside}"]
    assert "wrong" not in repr(found)


@pytest.mark.slow
def test_known_cameras_give_the_pose(scene):
    found = match(*scene, model="essential", camera0=600.0, max_keypoints=1500)
    assert found.success and found.model == "essential"
    # The walls moved to the right: the camera went to the left, without turning.
    assert abs(found.t_0to1[0]) > 0.95
    assert np.degrees(np.linalg.norm(cv2.Rodrigues(found.R_0to1)[0])) < 3
    K = np.array([[600, 0, 249.5], [0, 600, 199.5], [0, 0, 1.0]])
    same = match(*scene, model="essential", camera0=K, camera1=K, max_keypoints=1500)
    np.testing.assert_array_equal(same.matrix, found.matrix)
    np.testing.assert_allclose(np.linalg.norm(found.F_0to1), 1)
    np.testing.assert_allclose(unit(K.T @ found.F_0to1 @ K), unit(found.E_0to1), atol=1e-9)
    assert match(*scene, model="auto", camera0=600.0, max_keypoints=1500).model == "essential"


@pytest.mark.slow
def test_exif_gives_the_focal_length(scene, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    paths = []
    for k, image in enumerate(scene):
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0xA405] = 43  # 43 / 36 of 500 px
        paths.append(tmp_path / f"{k}.jpg")
        Image.fromarray(image).save(paths[k], exif=exif, quality=95)
    by_exif = match(*paths, model="essential", max_keypoints=1000)
    given = match(*paths, model="essential", camera0=43 / 36 * 500, max_keypoints=1000)
    np.testing.assert_allclose(by_exif.matrix, given.matrix)
    opened = [Image.open(path) for path in paths]
    assert match(*opened, model="auto", max_keypoints=1000).model == "essential"
    with pytest.raises(ValueError, match=r"needs camera0.*image0 has no EXIF"):
        match(*scene, model="essential")


def test_every_form_of_an_image_gives_the_same_matches(files):
    arrays = [cv2.imread(str(path)) for path in files]
    expected = match(*arrays)
    forms = {"text": [str(path) for path in files], "path": [pathlib.Path(path) for path in files]}
    if "PIL" in sys.modules or pytest.importorskip("PIL"):
        from PIL import Image

        forms["PIL"] = [Image.open(path) for path in files]
    for name, images in forms.items():
        found = match(*images)
        np.testing.assert_array_equal(found.matches, expected.matches, err_msg=name)


def test_tensors_are_images_too(files):
    torch = pytest.importorskip("torch")
    arrays = [cv2.imread(str(path)) for path in files]
    expected = match(*arrays)
    tensors = [
        torch.from_numpy(np.ascontiguousarray(array[:, :, ::-1].transpose(2, 0, 1)))
        for array in arrays
    ]
    np.testing.assert_array_equal(match(*tensors).matches, expected.matches)
    np.testing.assert_array_equal(match(*(t[None] for t in tensors)).matches, expected.matches)
    floats = match(*(t.float() / 255 for t in tensors))
    assert floats.success and len(floats.matches) > 0.9 * len(expected.matches)
    with pytest.raises(ValueError, match=r"image0 as a tensor must be \(C, H, W\).*\(2, 5, 5\)"):
        match(torch.zeros(2, 5, 5), tensors[0])


def test_colours_are_in_opencvs_order():
    torch = pytest.importorskip("torch")
    red = torch.zeros(3, 4, 5)
    red[0] = 1
    assert sources.as_source(red).pixels[0, 0].tolist() == [0, 0, 1]
    Image = pytest.importorskip("PIL.Image")
    assert sources.as_source(Image.new("RGB", (5, 4), (255, 0, 0))).pixels[0, 0].tolist() == [
        0, 0, 255,
    ]  # fmt: skip
    assert sources.as_source(Image.new("L", (5, 4), 7)).pixels.shape == (4, 5)
    assert sources.as_source(torch.ones(4, 5)).pixels.shape == (4, 5)
    deep = sources.as_source(Image.new("I;16", (5, 4), 40_000)).pixels
    assert deep.dtype == np.uint16 and (deep == 40_000).all()


def test_a_large_image_is_reduced_and_the_result_is_in_its_own_pixels(files):
    large = [cv2.resize(cv2.imread(str(path)), None, fx=3, fy=3) for path in files]
    found = match(*large, max_size=300)
    assert found.success
    H = found.H_0to1 / found.H_0to1[2, 2]
    np.testing.assert_allclose(H[:2, 2], [-60, -60], atol=2)
    assert found.points0.max() > 600
    with pytest.raises(ValueError, match="max_size must be at least 1, got 0"):
        match(*large, max_size=0)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (np.zeros((200, 200), np.uint8), "image 1 has no keypoints: it is too dark"),
        (np.full((200, 200), 255, np.uint8), "image 1 has no keypoints: it is too bright"),
        (np.full((200, 200), 128, np.uint8), "image 1 has no keypoints: it is flat"),
        (np.zeros((7, 9), np.uint8), "image 1 has no keypoints: it is tiny, 9 x 7 pixels"),
    ],
    ids=["dark", "bright", "flat", "tiny"],
)
def test_without_keypoints_it_says_in_which_image_and_why(image, why, camera):
    found = match(camera, image)
    assert not found.success and found.failure.startswith(why)
    assert match(image, camera).failure.startswith(why.replace("image 1", "image 0"))


def test_what_matches_by_chance_is_called_so(photographs):
    found = match(photographs["grass"], photographs["brick"], max_keypoints=500)
    assert not found.success and found.failure
    assert match(photographs["camera"], photographs["camera"]).failure == ""


def test_one_wall_of_many_is_not_called_chance(photographs):
    strips = [photographs["astronaut"][50 * k : 50 * k + 50] for k in range(10)]
    moves = (10, 70, 25, 90, 0, 50, 35, 100, 5, 60)
    views = [
        np.vstack([strip[:, d : d + 400] for strip, d in zip(strips, starts, strict=True)])
        for starts in (moves, (0,) * 10)
    ]
    found = match(*views)
    assert not found.success and 0.1 < found.inliers.mean() < 0.3
    inliers, matches = found.inliers.sum(), len(found.matches)
    assert (
        found.failure == f"only {inliers} of {matches} matches are on the plane, too few to be sure"
    )


def test_a_result_draws_itself(scene, tmp_path):
    pytest.importorskip("matplotlib")
    result = match(*scene, max_keypoints=300, model="auto")
    picture = result.draw(tmp_path / "matches.png")
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "matches.png")), picture)
    with pytest.raises(ValueError, match=r"cannot write a picture with the suffix '\.abc'"):
        result.draw(tmp_path / "matches.abc")


def test_heic_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "IMG_1.HEIC"
    path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ValueError, match=r"HEIC photograph: pip install pillow-heif"):
        match(path, path)


def test_verification_of_retrieval_counts_both_walls(scene, monkeypatch):
    from kd_cv.collection import Extraction

    extraction = Extraction(max_keypoints=1000)
    query, other = (extraction.features(image) for image in scene)
    monkeypatch.setattr(retrieval, "THRESHOLD", 3.0)
    hit = retrieval.verified(retrieval.Hit("other", 1.0), query, other)
    assert hit.verified and hit.model == "fundamental" and hit.H_0to1 is None
    assert hit.inliers > 1.2 * match(*scene, max_keypoints=1000).inliers.sum()
