"""Protocols against hand-made cases; candidates against the descriptors they stand for."""

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from experiments.__main__ import main
from experiments.protocols import metrics
from experiments.protocols.cache import Cache
from experiments.protocols.candidates import (
    kd_candidate,
    make_candidates,
    resized,
    sift_candidate,
    with_ws,
)
from experiments.protocols.hpatches import hpatches
from experiments.protocols.matching import Plane, image_matching, match_scores
from experiments.protocols.pairs import Measure
from experiments.protocols.patch_curves import robustness_curves, shrinkage_curves
from experiments.protocols.patch_sets import PatchSet
from experiments.protocols.readers import (
    builtin_photos,
    builtin_scenes,
    read_images,
    warped_images,
)
from experiments.protocols.strips import strips_of_sequence
from experiments.protocols.tasks import Tasks
from experiments.protocols.verification import (
    pairs_of_scenes,
    pairs_of_set,
    patch_verification,
)
from kd_cv import KDDescriptor, describe
from kd_cv.fit.scenes import NO_POINT, Scene, View
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
    assert np.array_equal(plain.at_frames(camera, frames), raw.compute(camera, keypoints)[1])
    assert np.array_equal(plain.of_patches(patches), describe(patches, whitening=None))
    finer = raw.with_settings(patch_size=48)
    assert np.array_equal(set_to_48.at_frames(camera, frames), finer.compute(camera, keypoints)[1])
    smaller = describe(resized(patches, 48), whitening=None)
    assert np.array_equal(set_to_48.of_patches(patches), smaller)


def test_names_of_candidates(fitted):
    found = make_candidates(
        ["kd", "raw", "sift", "rootsift"], weights=[fitted], whitening=["ws", None, "wua"]
    )
    assert [c.name for c in found] == [
        "KD ws (given 1)", "KD raw", "KD wua (given 1)", "SIFT", "RootSIFT",
    ]  # fmt: skip
    both = make_candidates(["kd"], weights=[fitted, replace(fitted, A_m=None, mu_m=None)])
    assert [c.name for c in both] == ["KD wm (given 1)", "KD ws (given 2)"]
    with pytest.raises(ValueError, match="unknown descriptor 'surf'"):
        make_candidates(["surf"])
    with pytest.raises(ValueError, match="no descriptor"):
        make_candidates([])


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
def test_matching_with_a_cache_is_the_same(sequence_folder, tmp_path, capsys):
    plain = image_matching(
        read_images(sequence_folder), make_candidates(["raw", "sift"]), max_keypoints=200
    )
    assert plain[0].values["ap"] > 50
    command = ["matching", str(sequence_folder), "--max-keypoints", "200", "--json"]
    command += ["--descriptor", "raw,sift", "--cache", str(tmp_path)]
    for _ in range(2):
        assert main(command) == 0
        found = json.loads(capsys.readouterr().out)["scores"]
        assert [score["values"] for score in found] == [score.values for score in plain]
        assert len(list(tmp_path.iterdir())) == 2 * 3


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
    scores = image_matching(sets, [*base, *followed], Measure(seeds=1), max_keypoints=300)
    before, after = ([s.values["ap"] for s in part] for part in (scores[:3], scores[3:]))
    assert all(b > a for a, b in zip(before, after, strict=True)), (before, after)
    assert [s.dim for s in scores[3:]] == [128, 128, 128]
    with pytest.raises(ValueError, match="matching pairs or more"):
        with_ws(sift_candidate(), builtin_scenes(["brick"], views=2, max_keypoints=30))


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
    command = ["verification", str(phototourism_folder), "--patch-size", "32"]
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
def test_strips_of_sequences_are_saved_with_their_tasks(sequence_folder, tmp_path, capsys):
    saved = tmp_path / "saved"
    command = ["hpatches", "--descriptor", "raw", "--json"]
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
    command = [protocol, str(phototourism_folder), "--patch-size", "32", "-o", str(path)]
    options = {"shrinkage": ["--weights", str(weights)], "robustness": ["--whitening", "none"]}
    command += options.get(protocol, [])
    assert main(command) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(f"picture: {path}") and len(out.splitlines()) > 12
    assert cv2.imread(str(path)).std() > 10


def test_eigenvalues_of_the_shipped_matrices(capsys):
    assert main(["eigenvalues", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["source"] == "whitening: multiview"
    lam, attenuated, shrunk = (np.array(content[name]) for name in ("w", "wua", "wus"))
    assert lam[0] == 1 and (np.diff(lam) <= 0).all()
    np.testing.assert_allclose(attenuated, lam**0.7)
    np.testing.assert_allclose(shrunk, (1 - lam[39]) * lam + lam[39])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verification", "EMPTY"], "patchesNNNN"),
        (["hpatches", "EMPTY"], "no sequences"),
        (["matching", "--descriptor", "surf"], "unknown descriptor"),
        (["matching", "--whitening", "finest"], "unknown whitening"),
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
    assert main([*(names.get(a, a) for a in arguments)]) == 2
    err = capsys.readouterr().err
    assert words in err and err.startswith("python -m experiments ")


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "liberty").is_dir(), reason="the Liberty patches are not here")
def test_raw_fpr95_on_genuine_patches():
    from experiments.protocols.patch_sets import read_phototourism

    patch_set = read_phototourism(SHARED / "liberty")
    raw = make_candidates(["raw"], patch_size=64)
    (score,) = patch_verification(pairs_of_set(patch_set), raw)
    assert score.values["fpr95"] == pytest.approx(23.5, abs=0.5)
