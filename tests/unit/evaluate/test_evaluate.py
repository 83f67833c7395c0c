"""Protocols against hand-made cases; candidates against the descriptors they stand for."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from kd_cv.cli.evaluate.options import Comparison
from kd_cv.cli.evaluate.pairs import AtKeypoints

from kd_cv import KDDescriptor, describe
from kd_cv.cli import main
from kd_cv.evaluate import metrics
from kd_cv.evaluate.cache import Cache
from kd_cv.evaluate.candidates import (
    kd_candidate,
    kornia_candidate,
    make_candidates,
    resized,
    sift_candidate,
    sift_keypoints,
    whitened,
    with_ws,
)
from kd_cv.evaluate.curves import moved, robustness_curves, shrinkage_curves
from kd_cv.evaluate.hpatches import hpatches
from kd_cv.evaluate.images import Plane, image_matching, match_scores
from kd_cv.evaluate.pairs import Measure
from kd_cv.evaluate.patch_sets import PatchSet
from kd_cv.evaluate.patches import PatchPairs, pairs_of_scenes, pairs_of_set, patch_verification
from kd_cv.evaluate.readers import (
    builtin_scenes,
    labelled_pairs,
    read_images,
    scenes_of,
    warped_images,
)
from kd_cv.evaluate.strips import strips_of_sequence
from kd_cv.evaluate.tasks import Tasks
from kd_cv.fit.scenes import NO_POINT, Scene, View
from kd_cv.fit.sequences import ImageSet, read_sequence
from kd_cv.io.builtin import builtin_photos
from kd_cv.keypoints import from_keypoints
from kd_cv.opencv.rootsift import RootSIFT
from kd_cv.whitening import save

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


class Pixels:
    """A descriptor that anyone can check: the gray values; at frames, of the 3 x 3 around."""

    name = kind = "pixels"

    def __init__(self, gain=1.0):
        self.gain = gain
        self.calls = 0

    def configuration(self):
        return {"gain": self.gain}

    def of_patches(self, patches):
        self.calls += 1
        return self.gain * patches.reshape(len(patches), -1).astype(np.float32)

    def at_frames(self, gray, frames):
        x, y = np.rint(frames[:, :2]).astype(int).T
        self.calls += 1
        return np.stack(
            [gray[y + dy, x + dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)], axis=1
        ).astype(np.float32)


def patches_of(values, side=2):
    """One flat patch for each gray value."""
    values = np.asarray(values, np.uint8)
    return np.broadcast_to(values[:, None, None], (len(values), side, side)).copy()


# --------------------------------------------------------------------------------------- candidates


@pytest.mark.slow
@pytest.mark.parametrize("root", [False, True])
def test_sift_at_frames_is_opencv_at_keypoints(photographs, root):
    image = photographs["astronaut"]
    keypoints = cv2.SIFT_create(1500).detect(image, None)
    rival = RootSIFT() if root else cv2.SIFT_create()
    expected = rival.compute(image, keypoints)[1]
    frames = from_keypoints(keypoints)
    assert len({k.octave & 255 for k in keypoints}) > 3
    assert np.array_equal(sift_candidate(root).at_frames(image, frames), expected)


def test_sift_takes_any_size_and_no_frames(camera):
    frames = np.array([[100.0, 100.0, size, 0.0] for size in (0.1, 1.0, 3.2, 50.0, 5000.0)])
    rows = sift_candidate().at_frames(camera, frames)
    assert rows.shape == (5, 128) and np.isfinite(rows).all()
    assert sift_candidate().at_frames(camera, np.empty((0, 4))).shape == (0, 128)
    assert sift_candidate(True).of_patches(np.empty((0, 64, 64), np.uint8)).shape == (0, 128)
    assert sift_keypoints(np.empty((0, 4)), camera.shape) == ()


@pytest.mark.slow
def test_kd_candidate_is_the_descriptor(camera, keypoints, fitted):
    kd = KDDescriptor(weights=fitted, whitening="ws", scales=2)
    candidate = kd_candidate(kd.settings)
    rows = candidate.at_frames(camera, from_keypoints(keypoints))
    assert np.array_equal(rows, kd.compute(camera, keypoints)[1])
    assert (candidate.name, candidate.kind) == ("KD ws (given)", "concat+ws")
    patches = camera[:256, :256].reshape(8, 32, 8, 32).swapaxes(1, 2).reshape(-1, 32, 32)
    expected = describe(patches, weights=fitted, whitening="ws")
    assert np.allclose(candidate.of_patches(patches), expected, atol=1e-6)
    larger = np.stack([cv2.resize(p, (64, 64), interpolation=cv2.INTER_NEAREST) for p in patches])
    assert np.allclose(candidate.of_patches(larger), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"upright": True}, {"descriptor_type": cv2.CV_8U}, {"scales": 3, "upright": True}],
)
def test_settings_give_the_rows_of_the_descriptor_also_out_of_the_cache(
    camera, keypoints, tmp_path, settings
):
    frames, cache = from_keypoints(keypoints), Cache(tmp_path)
    plain, changed = KDDescriptor(), KDDescriptor(**settings)
    for kd in (plain, changed, plain, changed):  # each in turn finds the file of the other
        rows = cache.frames("camera", kd_candidate(kd.settings), camera, frames)
        assert np.array_equal(rows, kd.compute(camera, keypoints)[1])
    assert len(list(tmp_path.iterdir())) == 1
    assert not np.array_equal(rows, plain.compute(camera, keypoints)[1])


def test_configurations_differ_when_rows_do(fitted):
    kinds = [
        KDDescriptor(whitening=None),
        KDDescriptor(whitening=None, patch_size=48),
        KDDescriptor(whitening=None, magnification=10),
        KDDescriptor(whitening=None, scales=2),
        KDDescriptor(whitening=None, kernel="polar"),
        KDDescriptor(whitening="ws", weights=fitted),
        KDDescriptor(whitening="wus", weights=fitted),
        KDDescriptor(whitening="wus", weights=fitted, dim=64),
    ]
    found = {json.dumps(kd_candidate(kd.settings).configuration(), sort_keys=True) for kd in kinds}
    assert len(found) == len(kinds)


def test_candidates_describe_images_with_32_samples_and_patches_with_64(camera, keypoints):
    frames = from_keypoints(keypoints)
    patches = camera[:256, :256].reshape(4, 64, 4, 64).swapaxes(1, 2).reshape(-1, 64, 64)
    (plain,), (set_to_48,) = make_candidates(["raw"]), make_candidates(["raw"], patch_size=48)
    raw = KDDescriptor(whitening=None, magnification=15)
    assert np.array_equal(plain.at_frames(camera, frames), raw.settings.rows(camera, frames))
    assert np.array_equal(plain.of_patches(patches), describe(patches, whitening=None))
    finer = raw.with_settings(patch_size=48)
    assert np.array_equal(set_to_48.at_frames(camera, frames), finer.settings.rows(camera, frames))
    smaller = describe(resized(patches, 48), whitening=None)
    assert np.array_equal(set_to_48.of_patches(patches), smaller)


def test_a_program_and_the_command_line_compare_the_same():
    for of_command in (Comparison().candidates(), AtKeypoints().candidates()):
        assert [dict(c.configuration()) for c in of_command] == [
            dict(c.configuration()) for c in make_candidates()
        ]


def test_scenes_with_jitter_carry_keypoints_with_that_noise(tmp_path, camera):
    for k in (1, 2):
        cv2.imwrite(str(tmp_path / f"{k}.png"), camera[:200, :200])
    np.savetxt(tmp_path / "H_1_2", np.eye(3))
    (exact,), (noisy,) = scenes_of(tmp_path), scenes_of(tmp_path, "hard")
    assert np.array_equal(exact.views[0].frames, exact.views[1].frames)
    first, second = noisy.views
    assert np.array_equal(first.point_ids, second.point_ids) and len(first.frames) > 20
    off = np.abs(first.frames[:, :2] - second.frames[:, :2]).max(axis=1)
    assert np.median(off) > 0.1


def test_names_of_candidates(fitted):
    found = make_candidates(
        ["kd", "raw", "sift", "rootsift"], weights=[fitted], whitening=["ws", None, "wua"]
    )
    assert [c.name for c in found] == [
        "KD ws (given)", "KD raw", "KD wua (given)", "SIFT", "RootSIFT",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="unknown descriptor 'surf'"):
        make_candidates(["surf"])
    with pytest.raises(ValueError, match="no descriptor"):
        make_candidates([])


@pytest.mark.slow
def test_patch_descriptors_of_kornia(camera, keypoints):
    pytest.importorskip("kornia")
    (candidate,) = make_candidates(["kornia:SIFTDescriptor"])
    assert (candidate.name, candidate.kind) == ("SIFTDescriptor", "siftdescriptor")
    assert candidate.of_patches(np.zeros((0, 41, 41), np.uint8)).shape == (0, 128)
    frames = from_keypoints(keypoints[:20])
    rows = candidate.at_frames(camera, frames)
    assert rows.shape == (20, 128) and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-4)
    assert candidate.at_frames(camera, frames[:0]).shape == (0, 128)
    json.dumps(candidate.configuration())
    with pytest.raises(ValueError, match="no class 'Nothing'"):
        kornia_candidate("Nothing")


# ------------------------------------------------------------------------------------ describe once


def test_rows_are_stored_and_stale_ones_made_anew(tmp_path):
    cache, patches = Cache(tmp_path / "cache"), patches_of([1, 2, 3])
    first = Pixels()
    rows = cache.patches("set", first, patches)
    again = Pixels()
    assert np.array_equal(cache.patches("set", again, patches), rows)
    assert (first.calls, again.calls) == (1, 0)
    other = Pixels(gain=2.0)  # the same name, another configuration
    assert np.array_equal(cache.patches("set", other, patches), 2 * rows) and other.calls == 1
    changed = Pixels(gain=2.0)
    assert cache.patches("set", changed, patches_of([1, 2, 4]))[2, 0] == 8 and changed.calls == 1
    (path,) = (tmp_path / "cache").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    damaged = Pixels()
    assert np.array_equal(cache.patches("set", damaged, patches), rows) and damaged.calls == 1
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["set.pixels.npz"]


# --------------------------------------------------------------------------------- labelled patches


def test_all_pairs_but_identical_patches_of_different_points():
    patches = patches_of([10, 20, 30, 30, 40])
    found = pairs_of_set(PatchSet(patches, np.array([0, 0, 1, 2, NO_POINT])))
    # (2, 3) look the same and are not: dropped; patch 4 shows an unknown point.
    assert found.pairs.tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3]]
    assert found.labels.tolist() == [True, False, False, False, False]


def test_pairs_that_cannot_be_had():
    patch_set = PatchSet(patches_of([1, 2]), np.array([0, 0]))
    with pytest.raises(ValueError, match="m50"):
        pairs_of_set(patch_set, "m50")
    with pytest.raises(ValueError, match="FPR95 needs"):
        patch_verification(pairs_of_set(patch_set), [Pixels()])
    many = PatchSet(np.zeros((6000, 1, 1), np.uint8), np.zeros(6000, np.int64))
    with pytest.raises(ValueError, match="m50 file instead"):
        pairs_of_set(many)
    unlabelled = PatchSet(patches_of([1, 2]), np.full(2, NO_POINT))
    with pytest.raises(ValueError, match="got 0"):
        pairs_of_set(unlabelled)


def test_the_pairs_of_an_m50_file_are_taken_as_they_are():
    pairs, labels = np.array([[0, 2], [1, 0]]), np.array([False, True])
    patch_set = PatchSet(patches_of([10, 20, 30]), np.array([0, 0, 1]), pairs, labels)
    found = pairs_of_set(patch_set, "m50")
    assert found.pairs.tolist() == pairs.tolist() and found.labels.tolist() == labels.tolist()
    assert len(found.patches) == 3


def test_fpr95_by_hand():
    # Matching distances 2 * |difference| (patches of 2 x 2): 2; others: 2 of 4 within it.
    patch_set = PatchSet(patches_of([10, 11, 11, 50]), np.array([0, 0, 1, 2]))
    labelled = pairs_of_set(patch_set)
    distance = [2 * abs(int(a) - int(b)) for a, b in patch_set.patches[:, 0, 0][labelled.pairs]]
    expected = 100 * np.mean([d <= 2 for d, same in zip(distance, labelled.labels) if not same])  # noqa: B905
    (score,) = patch_verification(pairs_of_set(patch_set), [Pixels()])
    assert score.values["fpr95"] == pytest.approx(expected) == pytest.approx(25.0)
    assert (score.name, score.dim) == ("pixels", 4)


def test_pairs_of_scenes_keep_points_apart(camera):
    frames = from_keypoints(cv2.SIFT_create(60).detect(camera, None))[:50]
    views = tuple(View(camera, frames, np.arange(50)) for _ in range(2))
    found = pairs_of_scenes([Scene("a", views), Scene("b", views)], 32, max_pairs=80)
    assert found.labels.sum() == 80 and (~found.labels).sum() == 80
    a, b = found.patches[found.pairs].swapaxes(0, 1)
    assert np.array_equal(a[found.labels], b[found.labels])
    with pytest.raises(ValueError, match="no matching pairs"):
        pairs_of_scenes([Scene("a", views[:1])])


# ----------------------------------------------------------------------------------------- hpatches


def strips(values, count=2, levels="e"):
    """Strips that all show the same patches, each a little chess board."""
    kinds = ["ref", *(f"{level}{k + 1}" for level in levels for k in range(count))]
    board = np.array([[0, 30], [30, 0]], np.uint8)
    return {kind: patches_of(values) + board for kind in kinds}


def test_perfect_descriptors_reach_everything():
    sequences = [("a", strips(range(0, 60, 4))), ("b", strips(range(100, 220, 4), count=3))]
    (score,) = hpatches(sequences, [Pixels()])
    for task in ("verification", "matching", "retrieval"):
        assert score.values[task] == pytest.approx(100)
        assert score.values[f"{task} easy"] == pytest.approx(100)


def test_matching_of_strips_by_hand():
    # One image has two patches exchanged: of 4 answers 2 are right, ranked among equal distances.
    one = strips([0, 50, 100, 200], count=1, levels="eh")
    one["h1"] = one["h1"][[1, 0, 2, 3]]
    (score,) = hpatches([("a", one)], [Pixels()])
    half = metrics.average_precision(np.zeros(4), [0, 0, 1, 1], 4)
    assert score.values["matching easy"] == pytest.approx(100)
    assert score.values["matching hard"] == pytest.approx(100 * half)
    assert score.values["matching"] == pytest.approx(50 * (1 + half))
    assert "retrieval" not in score.values  # which needs another sequence
    with pytest.raises(ValueError, match="no sequences"):
        hpatches([], [Pixels()])


def test_retrieval_by_hand():
    # The patch of "a" looks like one of "b": its copy, a little changed, comes second.
    a = {"ref": patches_of([100, 20]), "e1": patches_of([110, 20])}
    b = {"ref": patches_of([102, 220]), "e1": patches_of([102, 220])}
    all_patches = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    pairs = np.zeros((5, 6), np.int64)
    tasks = Tasks(("a", "b"), pairs, pairs, pairs, all_patches, all_patches)
    (score,) = hpatches([("a", a), ("b", b)], [Pixels()], tasks=tasks)
    second = metrics.average_precision([-10.0, -2.0, -120.0], [1, 0, 0])
    # In "b", the first query has 100 and 20 as distractors and finds itself at distance 0.
    assert score.values["retrieval"] == pytest.approx(100 * (second + 3) / 4)
    (score,) = hpatches([("a", a), ("b", b)], [Pixels()])
    assert "retrieval" not in score.values  # flat patches are no queries


@pytest.fixture(scope="module")
def sequence_folder(tmp_path_factory, photographs):
    """A photograph and two views of it in HPatches' layout."""
    folder = tmp_path_factory.mktemp("sequences") / "v_camera"
    folder.mkdir()
    image = photographs["camera"]
    height, width = image.shape
    for k, (turn, zoom) in enumerate(((0, 1.0), (12, 1.0), (-8, 0.9)), start=1):
        M = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), turn, zoom), [0, 0, 1]])
        warped = cv2.warpPerspective(image, M, (width, height), borderMode=cv2.BORDER_REFLECT_101)
        cv2.imwrite(str(folder / f"{k}.png"), warped)
        if k > 1:
            np.savetxt(folder / f"H_1_{k}", M)
    return folder.parent


@pytest.mark.slow
def test_strips_of_a_sequence_show_the_same_points(sequence_folder):
    (sequence,) = read_images(sequence_folder)
    found = strips_of_sequence(sequence, max_patches=60)
    assert set(found) == {"ref", "e1", "e2", "h1", "h2", "t1", "t2"}
    assert {strip.shape for strip in found.values()} == {(60, 65, 65)}
    (score,) = hpatches([(sequence.name, found)], make_candidates(["raw"]))
    levels = [score.values[f"matching {level}"] for level in ("easy", "hard", "tough")]
    assert levels[0] > levels[1] > levels[2] > 3 and levels[0] > 70


# ----------------------------------------------------------------------------------- image matching


POINTS = np.array([[10.0, 10.0], [50.0, 10.0], [50.0, 50.0], [10.0, 50.0]])


def scores_of(rows0, rows1, points0=POINTS, points1=POINTS):
    plane = Plane(np.eye(3), (60, 60), (60, 60))
    return match_scores((points0, rows0), (points1, rows1), plane, Measure(seeds=1))


def test_matches_of_four_points():
    rows = np.eye(4, dtype=np.float32)
    pair = scores_of(rows, rows)
    assert pair.others == {"ap": 100, "precision": 100} and pair.errors[0] < 1e-3
    assert scores_of(rows, rows, points1=POINTS + [2.9, 0]).others["ap"] == 100
    assert scores_of(rows, rows, points1=POINTS + [3.1, 0]) is None


def test_recall_is_relative_to_what_could_be_matched():
    rows = np.eye(4, dtype=np.float32)
    away = POINTS.copy()
    away[3] += 20  # its match is wrong, but no other would be right: 3 can be matched
    values = scores_of(rows, rows, points1=away).others
    assert values["precision"] == 75
    expected = metrics.average_precision(np.zeros(4), [1, 1, 1, 0], 3)
    assert values["ap"] == pytest.approx(100 * expected)
    swapped = rows[[1, 0, 2, 3]]  # two wrong answers where right ones exist
    values = scores_of(rows, swapped).others
    assert values["precision"] == 50
    expected = metrics.average_precision(np.zeros(4), [0, 0, 1, 1], 4)
    assert values["ap"] == pytest.approx(100 * expected)
    none = np.zeros_like(rows)  # which describes nothing
    assert scores_of(none, rows)[:2] == ([np.inf], {"ap": 0, "precision": 0})
    empty = np.empty((0, 4), np.float32)
    assert scores_of(empty, rows, points0=POINTS[:0]) is None


@pytest.mark.slow
def test_an_image_and_itself(camera):
    sets = [ImageSet("same", [camera, camera], np.stack([np.eye(3)] * 2))]
    for score in image_matching(sets, make_candidates(["raw", "rootsift"]), max_keypoints=200):
        assert score.values["ap"] > 99 and score.values["precision"] > 99
        assert score.values["auc3"] > 99 and score.values["pairs"] == 1


def test_nothing_to_match(camera):
    blank = np.full_like(camera, 128)
    sets = [ImageSet("blank", [blank, camera], np.stack([np.eye(3)] * 2))]
    with pytest.raises(ValueError, match="no pair of images"):
        image_matching(sets, [sift_candidate()])
    with pytest.raises(ValueError, match="max_keypoints must"):
        image_matching(sets, [sift_candidate()], max_keypoints=0)


@pytest.mark.slow
def test_cached_matching_is_the_same(sequence_folder, tmp_path):
    candidates = make_candidates(["raw", "sift"])
    sets = read_images(sequence_folder)
    plain, first, again = (
        image_matching(sets, candidates, max_keypoints=300, cache=cache)
        for cache in (Cache(), Cache(tmp_path), Cache(tmp_path))
    )
    assert plain == first == again
    assert len(list(tmp_path.iterdir())) == 2 * 3
    assert plain[0].values["ap"] > 50


# ------------------------------------------------------------------------------------------- curves


@pytest.fixture(scope="module")
def labelled():
    return pairs_of_scenes(builtin_scenes(["camera"], "hard", 3, 300), 64, max_pairs=600)


def test_shrinkage_ends_are_known_whitenings(labelled, fitted):
    raw = make_candidates(["raw"])[0].of_patches(labelled.patches)
    curves = shrinkage_curves(labelled, raw, fitted, [0.0, 0.6, 1.0], [1, 40])
    t0, t6, t1 = (error for _, error in curves["wua"])
    assert t0 == pytest.approx(labelled.fpr95(fitted.apply(raw, "wua", 128, t=0.0)))
    assert t1 == pytest.approx(labelled.fpr95(fitted.apply(raw, "w", 128)))
    assert t6 < t0 and curves["wus"][1][1] < curves["wus"][0][1]
    # beta = lam_1 = 1 divides all by the same: only a rotation is left, as with t = 0.
    assert curves["wus"][0] == (1, pytest.approx(t0, abs=0.5))


def test_moved_patches():
    patch = np.zeros((1, 9, 9), np.uint8)
    patch[0, 4, 7] = 200
    assert moved(patch, 0, -2)[0, 4, 5] == 200
    assert moved(patch, 90, 0)[0, 1, 4] == pytest.approx(200, abs=2)  # counter-clockwise
    assert np.array_equal(moved(patch, 0, 0), patch)


def test_robustness_is_as_the_paper_says(labelled):
    made = make_candidates(["raw"], kernels=["polar", "cart"], patch_size=32)
    candidates = dict(zip(["polar", "cart"], made, strict=True))
    turns, shifts = robustness_curves(labelled, candidates, turns=[0, 30], shifts=[0, 12])
    worse = {
        kind: {name: points[1][1] - points[0][1] for name, points in curves.items()}
        for kind, curves in (("turn", turns), ("shift", shifts))
    }
    assert worse["turn"]["cart"] > worse["turn"]["polar"]
    assert worse["shift"]["polar"] > worse["shift"]["cart"]
    still = candidates["polar"].of_patches(labelled.patches)
    assert turns["polar"][0] == (0, pytest.approx(labelled.fpr95(still)))


@pytest.mark.slow
def test_supervised_whitening_of_any_descriptor():
    scenes = builtin_scenes(["brick", "coffee", "chelsea"], views=3, max_keypoints=400)
    sets = list(warped_images(builtin_photos(["astronaut"]), views=3))
    base = [sift_candidate(), sift_candidate(True), *make_candidates(["raw"])]
    followed = [with_ws(candidate, scenes) for candidate in base]
    assert [w.kind for w in followed] == ["sift+ws", "rootsift+ws", "concat+ws"]
    scores = image_matching(sets, [*base, *followed], max_keypoints=500)
    before, after = ([s.values["ap"] for s in part] for part in (scores[:3], scores[3:]))
    assert all(b > a for a, b in zip(before, after, strict=True)), (before, after)
    assert [s.dim for s in scores[3:]] == [128, 128, 128]
    with pytest.raises(ValueError, match="matching pairs or more"):
        with_ws(sift_candidate(), builtin_scenes(["brick"], views=2, max_keypoints=30))


def test_whitened_rows_and_patches(labelled, fitted):
    raw = make_candidates(["raw"])[0]
    rows = whitened(raw, fitted, "wus", 64).of_patches(labelled.patches)
    expected = fitted.apply(raw.of_patches(labelled.patches), "wus", 64)
    assert np.allclose(rows, expected, atol=1e-6)


@pytest.mark.slow
def test_labelled_data_of_every_kind(sequence_folder, tmp_path, photographs):
    cv2.imwrite(str(tmp_path / "coins.png"), photographs["coins"])
    for data in (sequence_folder, tmp_path, None):
        found = labelled_pairs(data, patch_size=32)
        assert isinstance(found, PatchPairs) and found.patches.shape[1:] == (32, 32)
        assert 0 < 2 * found.labels.sum() == len(found.labels)
    with pytest.raises(ValueError, match="not a folder"):
        labelled_pairs(tmp_path / "missing")


# ------------------------------------------------------------------------------------- command line


@pytest.fixture(scope="module")
def phototourism_folder(tmp_path_factory, labelled):
    """A sheet of 256 patches, two of each of 128 points, in the original layout."""
    folder = tmp_path_factory.mktemp("pt") / "liberty"
    folder.mkdir()
    rows = labelled.pairs[labelled.labels][:128].ravel()
    sheet = labelled.patches[rows].reshape(16, 16, 64, 64).swapaxes(1, 2).reshape(1024, 1024)
    cv2.imwrite(str(folder / "patches0000.bmp"), sheet)
    ids = np.repeat(np.arange(128), 2)
    (folder / "info.txt").write_text("".join(f"{i} 0\n" for i in ids))
    return folder


@pytest.mark.slow
def test_phototourism_command(phototourism_folder, capsys):
    command = ["eval", "phototourism", str(phototourism_folder), "--patch-size", "32"]
    assert main([*command, "--descriptor", "raw,rootsift"]) == 0
    out = capsys.readouterr().out
    assert "KD raw" in out and "26.16" in out and "RootSIFT" in out and "paper" in out
    assert main([*command, "--descriptor", "raw", "--kernel", "polar,cart", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["name"] for s in found["scores"]] == ["KD polar raw", "KD cart raw"]
    assert all(0 <= s["values"]["fpr95"] <= 100 for s in found["scores"])
    assert main([*command, "--pairs", "m50"]) == 2
    assert "m50" in capsys.readouterr().err


@pytest.mark.slow
def test_matching_command(sequence_folder, tmp_path, capsys):
    command = ["eval", "matching", str(sequence_folder), "--max-keypoints", "200", "--json"]
    assert main([*command, "--descriptor", "sift,raw", "--cache", str(tmp_path / "c")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == 2 and len(list((tmp_path / "c").iterdir())) == 6
    keys = ("ap", "precision", "auc1", "auc3", "auc5", "auc10")
    assert set(found["scores"][0]["values"]) == {
        "pairs", *(f"{key}{end}" for key in keys for end in ("", " low", " high")),
    }  # fmt: skip


@pytest.mark.slow
def test_hpatches_command_on_the_release_layout(tmp_path, capsys, labelled):
    rows = labelled.pairs[labelled.labels][:40]
    for name, part in (("i_a", rows[:20]), ("v_b", rows[20:])):
        (tmp_path / name).mkdir()
        for kind, column in (("ref", 0), ("e1", 1), ("e2", 1)):
            strip = [cv2.resize(p, (65, 65)) for p in labelled.patches[part[:, column]]]
            cv2.imwrite(str(tmp_path / name / f"{kind}.png"), np.concatenate(strip))
    assert main(["eval", "hpatches", str(tmp_path), "--descriptor", "raw"]) == 0
    out = capsys.readouterr().out
    assert "retrieval" in out and "45.2 29.7 77.8" in out


@pytest.mark.slow
def test_strips_of_sequences_are_saved_with_their_tasks(sequence_folder, tmp_path, capsys):
    saved = tmp_path / "saved"
    command = ["eval", "hpatches", "--descriptor", "raw", "--json"]
    cutting = [str(sequence_folder), "--max-patches", "40", "--save-strips", str(saved)]
    assert main([*command, *cutting]) == 0
    first = json.loads(capsys.readouterr().out)["scores"]
    files = {path.name for path in (saved / "v_camera").iterdir()}
    assert files == {f"{kind}.png" for kind in ("ref", "e1", "e2", "h1", "h2", "t1", "t2")}
    tasks = ["--tasks", str(saved / "tasks"), "--split", "all"]
    assert main([*command, str(saved), *tasks]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == first
    assert main([*command, str(saved), "--save-strips", str(saved)]) == 2
    assert "holds strips already" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["shrinkage", "eigenvalues", "robustness"])
def test_curves_of_patches_as_table_and_picture(
    protocol, phototourism_folder, fitted, tmp_path, capsys
):
    weights = tmp_path / "w.npz"
    save(weights, {("concat", 32): fitted})
    path = tmp_path / f"{protocol}.png"
    command = ["eval", protocol, str(phototourism_folder), "--patch-size", "32", "-o", str(path)]
    options = {"shrinkage": ["--weights", str(weights)], "robustness": ["--whitening", "none"]}
    command += options.get(protocol, [])
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(f"picture: {path}") and len(out.splitlines()) > 12
    assert cv2.imread(str(path)).std() > 10
    if protocol != "robustness":  # which takes longest, and prints JSON the same way
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["protocol"] == protocol


@pytest.mark.slow
def test_robustness_of_each_kernel_as_json(phototourism_folder, capsys):
    command = ["eval", "robustness", str(phototourism_folder), "--patch-size", "32", "--json"]
    assert main(command) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["whitening"] == "whitening: multiview"
    turns, shifts = content["curves"].values()
    for curves, moves in ((turns, range(0, 31, 5)), (shifts, range(0, 13, 2))):
        assert set(curves) == {"polar", "cart", "concat"}
        assert all([x for x, _ in points] == list(moves) for points in curves.values())
    assert turns["cart"][-1][1] > turns["cart"][0][1]


def test_eigenvalues_of_the_shipped_matrices(capsys):
    assert main(["eval", "eigenvalues", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["source"] == "whitening: multiview"
    lam, attenuated, shrunk = (np.array(content[name]) for name in ("w", "wua", "wus"))
    assert lam[0] == 1 and (np.diff(lam) <= 0).all()
    np.testing.assert_allclose(attenuated, lam**0.7)
    np.testing.assert_allclose(shrunk, (1 - lam[39]) * lam + lam[39])


@pytest.mark.slow
def test_a_whitening_fitted_for_the_comparison(sequence_folder, photographs, tmp_path, capsys):
    photos, rows = tmp_path / "photos", tmp_path / "rows"
    photos.mkdir()
    for name in ("brick", "gravel"):
        cv2.imwrite(str(photos / f"{name}.png"), photographs[name])
    command = ["eval", "hpatches", str(sequence_folder), "--max-patches", "40", "--json"]
    command += ["--descriptor", "raw", "--fit-ws", str(photos), "--cache", str(rows)]
    assert main(command) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert [score["name"] for score in scores] == ["KD raw", "KD raw + ws"]
    assert [score["dim"] for score in scores] == [238, 128]
    raw, whitened = (score["values"]["matching"] for score in scores)
    assert whitened > raw and len(list(rows.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["phototourism", "MISSING"], "not a folder"),
        (["phototourism", "EMPTY"], "patchesNNNN"),
        (["hpatches", "EMPTY"], "no sequences"),
        (["matching", "EMPTY"], "no sequences"),
        (["matching", "--descriptor", "surf"], "unknown descriptor"),
        (["matching", "--whitening", "finest"], "unknown whitening"),
        (["matching", "--magnification", "0"], "magnification must be positive"),
        (["shrinkage", "-o", "a.txt"], "unknown kind of file"),
        (["shrinkage", "EMPTY"], "holds no photographs"),
        (["eigenvalues", "EMPTY", "--weights", "a.npz"], "not both"),
        (["robustness", "--whitening", "none", "--weights", "a.npz"], "needs no weights"),
        (["matching", "--fit-ws", "MISSING"], "not a folder"),
    ],
)
def test_what_eval_refuses(arguments, words, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    names = {"MISSING": str(tmp_path / "missing"), "EMPTY": str(tmp_path / "empty")}
    assert main(["eval", *(names.get(a, a) for a in arguments)]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("kd-cv: error") == 1


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "liberty").is_dir(), reason="the Liberty patches are not here")
def test_raw_fpr95_on_genuine_patches():
    from kd_cv.evaluate.patch_sets import read_phototourism

    patch_set = read_phototourism(SHARED / "liberty")
    raw = make_candidates(["raw"], patch_size=64)
    (score,) = patch_verification(pairs_of_set(patch_set), raw)
    assert score.values["fpr95"] == pytest.approx(23.5, abs=0.5)


def test_a_sequence_in_which_nothing_is_seen(tmp_path):
    for k in range(1, 4):
        cv2.imwrite(str(tmp_path / f"{k}.ppm"), np.zeros((64, 64, 3), np.uint8))
        np.savetxt(tmp_path / f"H_1_{k}", np.eye(3))
    with pytest.raises(ValueError, match="0 keypoints are seen in all images"):
        strips_of_sequence(read_sequence(tmp_path))
