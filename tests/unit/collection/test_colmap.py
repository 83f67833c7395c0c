"""COLMAP: bytes that its matchers understand, its coordinates, and a whole reconstruction."""

import json
import shlex
import shutil
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest
from collections_of_photographs import HEIGHT, RAW, WIDTH, corner, whitened
from skimage import data

from kd_cv.cli import main
from kd_cv.collection import Extraction, colmap, extract, reading
from kd_cv.collection.colmap import reconstruct
from kd_cv.collection.database import (
    as_colmap_bytes,
    match_database,
    read_pairs,
    write_database,
    write_pairs,
)
from kd_cv.extractor import to_uint8
from kd_cv.matching.neighbours import match_descriptors

pytestmark = pytest.mark.slow

pycolmap = pytest.importorskip("pycolmap")
pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corner(tmp_path_factory.mktemp("room") / "images")


def unit_rows(count: int, dim: int = 128) -> np.ndarray:
    rows = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_bytes_keep_distances_and_angles() -> None:
    rows = unit_rows(400, 127)
    data = as_colmap_bytes(rows).astype(np.float64)
    assert data.shape == (400, 128)
    assert np.abs(np.linalg.norm(data, axis=1) - 512).max() < 2
    a = np.sqrt(512**2 - 128 * 42**2)
    cosine = rows @ rows.T
    by_angle = np.abs((data @ data.T - 128 * 42**2) / a**2 - cosine)
    distance = np.linalg.norm(data[:, None] - data, axis=2) / a
    by_distance = np.abs(distance - np.sqrt(np.maximum(0, 2 - 2 * cosine)))
    # Rounding and clipping are all that is lost.
    assert by_angle.mean() < 0.02 and by_angle.max() < 0.15
    assert by_distance.mean() < 0.02 and by_distance.max() < 0.1


def test_bytes_of_other_dimensions() -> None:
    full = unit_rows(50)
    kept = full[:, :127] / np.linalg.norm(full[:, :127], axis=1, keepdims=True)
    assert np.array_equal(as_colmap_bytes(full), as_colmap_bytes(kept))
    assert as_colmap_bytes(unit_rows(5, 32)).shape == (5, 128)
    assert not as_colmap_bytes(np.zeros((2, 128), np.float32)).any()
    assert as_colmap_bytes(np.zeros((0, 128), np.float32)).shape == (0, 128)
    with pytest.raises(ValueError, match="at most 128 dimensions"):
        as_colmap_bytes(unit_rows(3, 238))


def colmap_matches(rows: list[np.ndarray], folder: Path, brute_force: bool) -> np.ndarray:
    """What COLMAP's own matcher makes of the bytes of two images."""
    folder.mkdir()
    database = pycolmap.Database.open(folder / "database.db")
    camera = pycolmap.Camera(model="SIMPLE_PINHOLE", width=100, height=100, params=[90, 50, 50])
    camera_id = database.write_camera(camera)
    ids = []
    for i, own in enumerate(rows):
        ids.append(database.write_image(pycolmap.Image(name=f"{i}", camera_id=camera_id)))
        database.write_keypoints(ids[-1], np.zeros((len(own), 2), np.float32))
        kind = pycolmap.FeatureExtractorType.SIFT
        database.write_descriptors(ids[-1], pycolmap.FeatureDescriptors(kind, own))
    database.close()
    options = pycolmap.FeatureMatchingOptions()
    options.sift.cpu_brute_force_matcher = brute_force
    options.skip_geometric_verification = True
    pycolmap.match_exhaustive(
        folder / "database.db", matching_options=options, device=pycolmap.Device.cpu
    )
    database = pycolmap.Database.open(folder / "database.db")
    matches = database.read_matches(*ids)
    database.close()
    return matches


def test_colmap_matches_our_bytes(room: Path, tmp_path: Path) -> None:
    """By L2 distance and by angle; an offset of 128 gives nothing by angle."""
    kd = whitened()
    rows = [kd.detectAndCompute(cv2.imread(str(room / f"{i}.png")), None)[1] for i in (1, 2)]
    wanted = {tuple(m) for m in match_descriptors(*rows, ratio=0.8)[0].tolist()}
    assert len(wanted) > 100
    for brute_force in (False, True):
        found = colmap_matches(
            [as_colmap_bytes(r) for r in rows], tmp_path / f"{brute_force}", brute_force
        )
        common = wanted & {tuple(m) for m in found.tolist()}
        assert len(common) > 0.85 * len(wanted)
        assert len(common) > 0.95 * len(found)
    assert len(colmap_matches([to_uint8(r) for r in rows], tmp_path / "offset", True)) == 0


def test_one_camera_for_two_sizes_of_images_is_refused(room: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photographs"
    photos.mkdir()
    image = cv2.imread(str(room / "0.png"))
    cv2.imwrite(str(photos / "a.png"), image)
    cv2.imwrite(str(photos / "b.png"), image[:-40])
    extract(photos, tmp_path / "features.h5", Extraction(whitened(), 100))
    with pytest.raises(ValueError, match=r"COLMAP refuses 1 of 2 images, .*differ in size"):
        write_database(tmp_path / "features.h5", photos, tmp_path / "d.db", camera="single")


def test_database_has_colmap_coordinates(room: Path, tmp_path: Path) -> None:
    features = tmp_path / "features.h5"
    extract(room, features, Extraction(whitened(), 300))
    ids = write_database(features, room, tmp_path / "database.db", camera="single")
    assert sorted(ids) == [f"{i}.png" for i in range(5)]
    database = pycolmap.Database.open(tmp_path / "database.db")
    with reading(features) as stored:
        for name, image_id in ids.items():
            keypoints = database.read_keypoints(image_id)
            x, y, size, angle = stored[name].frames.T
            sigma, turn = size / 2, np.deg2rad(angle)
            circle = np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn)
            expected = [x + 0.5, y + 0.5, *(sigma * part for part in circle)]
            assert np.allclose(keypoints, np.stack(expected, axis=1), atol=1e-4)
            data = database.read_descriptors(image_id).data
            assert np.array_equal(data, as_colmap_bytes(stored[name].descriptors))
    assert database.num_cameras() == 1
    camera = database.read_all_cameras()[0]
    assert (camera.width, camera.height) == (WIDTH, HEIGHT)
    database.close()


@pytest.mark.parametrize("matcher", ["kd", "colmap"])
def test_reconstruction(room: Path, tmp_path: Path, matcher: str) -> None:
    row = reconstruct(
        room,
        tmp_path,
        Extraction(whitened(), 800),
        matcher=matcher,  # type: ignore[arg-type]
        camera="single",
    )
    assert (row.descriptor, row.images, row.registered) == ("kd", 5, 5)
    assert row.points > 200 and row.track_length > 2.5 and row.error < 1.0
    model = pycolmap.Reconstruction(tmp_path / "sparse/0")
    assert model.num_points3D() == row.points
    assert {p.name for p in tmp_path.iterdir()} == {
        "features.h5",
        "database.db",
        "pairs.txt",
        "sparse",
    }
    # The two walls meet at a right angle: points of the model lie on two such planes.
    points = np.array([p.xyz for p in model.points3D.values()])
    assert right_angle(points) > 0.88


def right_angle(points: np.ndarray) -> float:
    """Part of the points near one of the two best perpendicular planes."""
    rng = np.random.default_rng(0)
    scale = np.median(np.linalg.norm(points - np.median(points, axis=0), axis=1))

    def best(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found, score = None, -1
        for _ in range(300):
            a, b, c = points[rng.choice(len(points), 3, replace=False)]
            normal = np.cross(b - a, c - a)
            if np.linalg.norm(normal) < 1e-6 * scale**2:  # a point twice: it has two angles
                continue
            normal /= np.linalg.norm(normal)
            near = np.abs((points - a) @ normal) < 0.02 * scale
            if near.sum() > score:
                found, score = (normal, near), near.sum()
        return found

    n0, near0 = best(points)
    n1, near1 = best(points[~near0])
    assert abs(n0 @ n1) < 0.1
    return (near0.sum() + near1.sum()) / len(points)


def test_pairs_of_names_with_blanks(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    for pairs in (
        [("a.png", "b.png")],
        [("a b.png", "#c.png"), ("d.png", "a b.png")],
        [("a.png", " b.png")],
    ):
        write_pairs(path, pairs)
        assert read_pairs(path) == pairs
    path.write_text("a.png b.png\n", encoding="utf-8-sig")  # with a byte order mark
    assert read_pairs(path) == [("a.png", "b.png")]
    for name in ("a\tb.png", "a\nb.png", ""):
        with pytest.raises(ValueError, match="a list of pairs cannot hold the name"):
            write_pairs(path, [("c.png", name)])
    path.write_text("a b.png\t\n")
    with pytest.raises(ValueError, match="pair 1: expected two names"):
        read_pairs(path)


def test_command(
    room: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("typer")
    for i in range(4):
        shutil.copy(room / f"{i}.png", tmp_path / f"{i}.png")
    (tmp_path / "broken.png").write_text("no picture")
    (tmp_path / "lists").mkdir()
    images, pairs = tmp_path / "lists" / "images.txt", tmp_path / "lists" / "pairs.txt"
    images.write_text("0.png\n1.png\n2.png\n3.png\nbroken.png\n")
    pairs.write_text("0.png 1.png\n1.png 2.png\n2.png 3.png\n")
    used = []
    for name in ("extract", "largest_model"):
        original = getattr(colmap, name)

        def spy(*arguments, original=original, **options):  # type: ignore[no-untyped-def]
            runner = options.get("runner", arguments[-1])
            used.append(getattr(runner, "keywords", {"workers": runner})["workers"])
            return original(*arguments, **options)

        monkeypatch.setattr(colmap, name, spy)

    def run(folder: str, *options: str) -> tuple[int, str, str]:
        shared = ["colmap", str(images), "--root", str(tmp_path), "--max-keypoints", "600"]
        workspace = ["--workspace", str(tmp_path / folder)]
        code = main([*shared, *workspace, "--camera", "single", *options])
        return code, *capsys.readouterr()

    code, out, err = run("w", "--pairs", str(pairs), "--matcher", "colmap", "--threads", "1")
    assert code == 0 and "| kd | 4 of 4 |" in out
    # Where the model is, and the command that opens it, which can be pasted as it is.
    model, command = out.splitlines()[-2:]
    assert model == f"model: {tmp_path.resolve() / 'w/sparse/0'}"
    assert pycolmap.Reconstruction(model.removeprefix("model: ")).num_reg_images() == 4
    words = shlex.split(command.removeprefix("open it: "))
    assert words[:2] == ["colmap", "gui"]
    opened = dict(zip(words[2::2], map(Path, words[3::2]), strict=True))
    assert set(opened) == {"--import_path", "--database_path", "--image_path"}
    assert all(path.exists() for path in opened.values())
    assert "skipped broken.png: is not an image" in err
    assert used == [1, 1]
    with closing(pycolmap.Database.open(tmp_path / "w" / "database.db")) as database:
        assert database.num_cameras() == 1
        assert database.num_matched_image_pairs() == 3
        loose = database.num_inlier_matches()
    # All pairs, with three descriptors; a strict ratio leaves fewer matches of the same pairs.
    code, out, err = run("all", "--compare", "--json", "--ratio", "0.6", "--max-size", "400")
    rows = json.loads(out)
    assert [row["descriptor"] for row in rows] == ["kd", "sift", "rootsift"]
    assert all(row["skipped"].keys() == {"broken.png"} for row in rows)
    assert used[2:4] == [None, -1] and "images, " not in err
    with closing(pycolmap.Database.open(tmp_path / "all" / "kd" / "database.db")) as database:
        assert database.num_matched_image_pairs() == 6
    code, out, _ = run("w", "--pairs", str(pairs), "--ratio", "0.5", "--json")
    assert 0 < json.loads(out)[0]["matches"] < loose
    assert "max_size 3200 there and 300 here" in run("w", "--max-size", "300")[2]
    code, out, _ = run("w", "--max-size", "300", "--overwrite", "--descriptor", "sift", "--json")
    assert json.loads(out)[0]["descriptor"] == "sift"


def test_no_reconstruction_is_a_row_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("astronaut", "coffee", "brick"):
        cv2.imwrite(str(folder / f"{name}.png"), getattr(data, name)()[:200, :200])
    (folder / "phone.mov").write_text("no picture")
    row = reconstruct(folder, tmp_path / "w", Extraction(RAW, 100))
    assert (row.images, row.registered, row.points, row.others) == (3, 0, 0, {".mov": 1})
    pytest.importorskip("typer")
    command = ["colmap", str(folder), "--workspace", str(tmp_path / "c"), "--max-keypoints", "50"]
    assert main([*command, "--json"]) == 1
    captured = capsys.readouterr()
    assert "1 other file is not read: 1 .mov" in captured.err
    (found,) = json.loads(captured.out)
    assert (found["registered"], found["track_length"], found["error"]) == (0, None, None)


def test_pairs_are_matched_once_in_either_order(room: Path, tmp_path: Path) -> None:
    features, database = tmp_path / "f.h5", tmp_path / "d.db"
    extract(room, features, Extraction(RAW, 100))
    write_database(features, room, database)
    (tmp_path / "pairs").write_bytes(
        b"\xef\xbb\xbf0.png 1.png\n1.png 0.png\n0.png 1.png\n2.png 1.png"
    )
    match_database(database, features, read_pairs(tmp_path / "pairs"))
    assert read_pairs(tmp_path / "pairs.txt") == [("0.png", "1.png"), ("2.png", "1.png")]
    with pytest.raises(ValueError, match="cannot be matched with itself"):
        match_database(database, features, [("0.png", "0.png")])


def test_changed_and_removed_photographs_are_noticed(room: Path, tmp_path: Path) -> None:
    photos = Path(shutil.copytree(room, tmp_path / "photographs"))
    features, database = tmp_path / "f.h5", tmp_path / "d.db"
    extract(photos, features, Extraction(RAW, 100))
    cv2.imwrite(str(photos / "4.png"), np.zeros((50, 60), np.uint8))
    with pytest.raises(ValueError, match=r"4\.png has changed since its features were extracted"):
        write_database(features, photos, database)
    (photos / "4.png").unlink()
    with pytest.raises(ValueError, match=r"1 of 5 images of .* are not in .*, such as 4\.png"):
        write_database(features, photos, database)
    row = reconstruct(photos, tmp_path / "w", Extraction(RAW, 100))
    (photos / "3.png").unlink()
    assert row.images == 4
    assert reconstruct(photos, tmp_path / "w", Extraction(RAW, 100)).images == 3


def test_keypoints_of_views_are_ellipses_in_the_database(room: Path, tmp_path: Path) -> None:
    features = tmp_path / "features.h5"
    extract(room, features, Extraction(whitened().with_settings(views=3), 300))
    ids = write_database(features, room, tmp_path / "database.db")
    with reading(features) as stored, pycolmap.Database.open(tmp_path / "database.db") as database:
        for name, image_id in ids.items():
            of_image = stored[name]
            shapes = database.read_keypoints(image_id)[:, 2:].reshape(-1, 2, 2).astype(np.float64)
            along, across = np.moveaxis(np.abs(shapes), 1, 0)  # extents along x and along y
            wide = np.linalg.norm(along, axis=1), np.linalg.norm(across, axis=1)
            stretch = np.array([[1, 1], [2, 1], [1, 2]])[of_image.views].T  # of views 0, 1, 2
            size = of_image.frames[:, 2] / 2 / np.sqrt(stretch.prod(axis=0))
            assert set(of_image.views) == {0, 1, 2}
            assert np.allclose(wide, stretch * size, rtol=1e-3)
