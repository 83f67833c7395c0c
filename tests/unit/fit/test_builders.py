"""Builders: the correspondences are checked against geometry that the test knows."""

import itertools

import cv2
import numpy as np
import pytest
from skimage import data

from kd_cv.detector.keypoints import detect
from kd_cv.fit.builders import hpatches_scene, random_homography, sfm_scene, warp_scene
from kd_cv.fit.correspond import (
    JITTER,
    REGION,
    Tolerance,
    candidate_pairs,
    circle_overlap,
    distinct,
    homography_map,
    jittered,
    link_detected,
    predict_frames,
    project_frames,
    transfer_frames,
)
from kd_cv.fit.scenes import NO_POINT, Scene
from kd_cv.fit.surface import Camera, SurfaceMap, pixels_from_rays, rays_from_pixels
from kd_cv.io.images import read_gray

H_TILTED = np.array([[1.1, 0.2, 5.0], [-0.15, 0.95, -3.0], [2e-4, -1e-4, 1.0]])


@pytest.fixture(scope="module")
def photo():
    return data.camera()


def random_frames(rng, n, side=400.0):
    return np.column_stack(
        [rng.uniform(0, side, (n, 2)), rng.uniform(3, 20, n), rng.uniform(0, 360, n)]
    )


def angle_between(a, b):
    return np.abs((a - b + 180) % 360 - 180)


# --------------------------------------------------------------------------------- point maps


def test_homography_map_against_opencv_and_differences():
    xy = np.random.default_rng(0).uniform(0, 400, (50, 2))
    mapped, J = homography_map(H_TILTED)(xy)
    np.testing.assert_allclose(mapped, cv2.perspectiveTransform(xy[:, None], H_TILTED)[:, 0])
    for axis, step in enumerate(1e-4 * np.eye(2)):
        ahead, behind = (homography_map(H_TILTED)(xy + s * step)[0] for s in (1, -1))
        np.testing.assert_allclose(J[:, :, axis], (ahead - behind) / 2e-4, atol=1e-6)


def test_homography_map_ignores_the_sign_of_H_and_hides_what_is_behind():
    H = np.eye(3)
    H[2, 0] = -0.01  # the horizon is x = 100
    xy = np.array([[50.0, 10.0], [100.0, 10.0], [150.0, 10.0]])
    for sign in (1, -1):
        mapped, _ = homography_map(sign * H)(xy)
        np.testing.assert_allclose(mapped[0], [100, 20])
        assert np.isnan(mapped[1:]).all()


def test_transfer_by_a_similarity_is_exact():
    turn, zoom = np.radians(30), 2.5
    H = np.eye(3)
    H[:2] = zoom * np.array([[np.cos(turn), -np.sin(turn), 4], [np.sin(turn), np.cos(turn), -6]])
    frames = random_frames(np.random.default_rng(0), 20)
    moved = transfer_frames(frames, homography_map(H))
    np.testing.assert_allclose(moved[:, 2], zoom * frames[:, 2])
    np.testing.assert_allclose(angle_between(moved[:, 3], frames[:, 3] + 30), 0, atol=1e-9)
    assert (moved[:, 3] >= 0).all() and (moved[:, 3] < 360).all()


def test_transfer_counts_an_upright_frame_as_angle_zero():
    upright, zero = np.array([[5.0, 5, 4, -1], [5, 5, 4, 0]])
    np.testing.assert_array_equal(
        transfer_frames(upright[None], homography_map(H_TILTED)),
        transfer_frames(zero[None], homography_map(H_TILTED)),
    )


def test_transfer_leaves_out_mirrors_and_squeezes():
    frames = random_frames(np.random.default_rng(0), 3)
    assert np.isnan(transfer_frames(frames, homography_map(np.diag([-1.0, 1, 1])))).all()
    for squeeze, seen in ((1.9, True), (2.1, False)):
        moved = transfer_frames(frames, homography_map(np.diag([squeeze, 1, 1])), 2.0)
        assert np.isfinite(moved).all() == seen
        assert np.isfinite(moved).any() == seen


# ---------------------------------------------------------------------------- correspondences


@pytest.mark.parametrize(
    ("change", "agrees"),
    [
        ((2.4, 0, 1, 0), True),
        ((2.6, 0, 1, 0), False),
        ((0, -2.4, 1, 0), True),
        ((0, 0, 1.45, 0), True),
        ((0, 0, 1.55, 0), False),
        ((0, 0, 1 / 1.55, 0), False),
        ((0, 0, 1, 29), True),
        ((0, 0, 1, 31), False),
        ((0, 0, 1, -29), True),
        ((0, 0, 1, -31), False),
    ],
)
def test_candidates_hand_placed(change, agrees):
    predicted = np.array([[np.nan] * 4, [50.0, 50, 10, 10]])
    x, y, size, angle = change
    found = np.array([[90.0, 90, 10, 10], [50 + x, 50 + y, 10 * size, (10 + angle) % 360]])
    pairs, cost = candidate_pairs(predicted, found)
    assert pairs.tolist() == ([[1, 1]] if agrees else [])
    assert len(cost) == len(pairs) and (cost <= 3).all()


def test_candidates_of_large_keypoints_may_lie_further():
    predicted, found = np.array([[50.0, 50, 100, 10]]), np.array([[60.0, 50, 100, 10]])
    assert len(candidate_pairs(predicted, found)[0]) == 1
    assert len(candidate_pairs(predicted, found, Tolerance(relative=0.05))[0]) == 0
    assert candidate_pairs(predicted, np.empty((0, 4)))[0].shape == (0, 2)


def noisy_views(rng, n_points=150, n_distractors=100):
    """Frames of four views of a plane: true points, in random order among distractors."""
    turn = np.vstack([cv2.getRotationMatrix2D((200, 150), 70, 0.8), [0, 0, 1]])
    H_1tok = [np.eye(3), H_TILTED, turn, np.linalg.inv(H_TILTED) @ turn]
    grid = np.stack(np.meshgrid(np.arange(15), np.arange(10)), -1).reshape(-1, 2) * 30.0 + 20
    points = random_frames(rng, n_points)
    points[:, :2] = grid[:n_points]
    frames, truth = [], []
    for H in H_1tok:
        seen = transfer_frames(points, homography_map(H))
        seen[:, :2] += rng.uniform(-0.7, 0.7, (n_points, 2))
        seen[:, 2] *= 1.1 ** rng.uniform(-1, 1, n_points)
        seen[:, 3] = (seen[:, 3] + rng.uniform(-8, 8, n_points)) % 360
        # Half of them turned by 90 degrees: at the right place, and yet another point.
        wrong = seen[rng.permutation(n_points)[:n_distractors]]
        wrong[::2, 3] = (wrong[::2, 3] + 90) % 360
        wrong[1::2, :2] += 12
        order = rng.permutation(n_points + n_distractors)
        frames.append(np.concatenate([seen, wrong])[order])
        truth.append(np.concatenate([np.arange(n_points), np.full(n_distractors, -1)])[order])
    return H_1tok, frames, truth


def homography_maps(H_1tok):
    return lambda i, j: homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i]))


def test_links_against_the_truth():
    H_1tok, frames, truth = noisy_views(np.random.default_rng(0))
    ids = link_detected(frames, homography_maps(H_1tok), itertools.combinations(range(4), 2))
    for view_ids in ids:
        known = view_ids[view_ids != NO_POINT]
        assert len(known) == len(np.unique(known))
    for i, j in itertools.combinations(range(4), 2):
        _, a, b = np.intersect1d(
            np.where(ids[i] == NO_POINT, -2, ids[i]), ids[j], return_indices=True
        )
        true = truth[i][a] >= 0
        # A true point is only ever linked with itself, and nearly all of them are.
        np.testing.assert_array_equal(truth[i][a][true], truth[j][b][true])
        assert (truth[j][b][~true] == -1).all()
        assert true.sum() >= 0.9 * 150


def test_a_chain_that_contradicts_the_map_is_not_closed():
    """a ~ b and b ~ c by 2 pixels each, but a and c are 4 apart: one of the links must go."""
    frames = [np.array([[50.0 + shift, 50, 8, 0]]) for shift in (0, 2, 4)]
    identity = homography_maps([np.eye(3)] * 3)
    ids = np.concatenate(link_detected(frames, identity, itertools.combinations(range(3), 2)))
    assert sorted(ids.tolist()) == [NO_POINT, 0, 0]
    # Without a prediction from a to c there is nothing to contradict.
    ids = np.concatenate(link_detected(frames, identity, [(0, 1), (1, 2)]))
    assert ids.tolist() == [0, 0, 0]


def test_links_of_nothing():
    ids = link_detected([np.empty((0, 4))] * 2, homography_maps([np.eye(3)] * 2), [(0, 1)])
    assert [len(n) for n in ids] == [0, 0]


# ------------------------------------------------------------------------------ projections


def test_projection_is_exact_and_within_the_images():
    rng = np.random.default_rng(0)
    frames = [random_frames(rng, 400), np.empty((0, 4)), np.empty((0, 4))]
    H_1tok = [np.eye(3), H_TILTED, np.diag([0.5, 0.5, 1])]
    shapes = [(400, 400), (300, 350), (400, 400)]
    for everywhere in (False, True):
        out, ids = project_frames(
            frames, shapes, homography_maps(H_1tok), [(0, 1), (0, 2)], rng, everywhere=everywhere
        )
        for j in (1, 2):
            _, a, b = np.intersect1d(ids[0], ids[j], return_indices=True)
            assert len(b) == len(ids[j]) > 10
            expected = transfer_frames(out[0][a], homography_map(H_1tok[j]))
            np.testing.assert_allclose(out[j][b], expected)
        for view, (height, width) in zip(out, shapes, strict=True):
            half = 2.5 * view[:, 2:3]
            assert (view[:, :2] >= half).all()
            assert (view[:, :2] <= np.array([width, height]) - 1 - half).all()
        assert (len(ids[1]) == len(ids[2]) == len(ids[0])) == everywhere


def test_projection_from_every_view_counts_a_point_once():
    """Views with the same keypoints: what came from the first is not taken again."""
    rng = np.random.default_rng(0)
    points = random_frames(rng, 300)
    maps = homography_maps([np.eye(3)] * 3)
    pairs = list(itertools.permutations(range(3), 2))
    out, ids = project_frames([points] * 3, [(400, 400)] * 3, maps, pairs, rng)
    for view in out:
        i, j = np.triu_indices(len(view), 1)
        d = np.linalg.norm(view[i, :2] - view[j, :2], axis=1)
        assert (circle_overlap(view[i, 2] / 2, view[j, 2] / 2, d) <= 0.5).all()
    assert len(np.unique(np.concatenate(ids))) == len(ids[0])


@pytest.mark.parametrize(("level", "median"), [("easy", 0.85), ("hard", 0.72)])
def test_jitter_has_the_overlap_that_hpatches_states(level, median):
    rng = np.random.default_rng(0)
    frames = random_frames(rng, 4000)
    shaken = jittered(frames, JITTER[level], rng)
    d = np.linalg.norm(shaken[:, :2] - frames[:, :2], axis=1)
    half = REGION / 2
    overlap = circle_overlap(half * frames[:, 2], half * shaken[:, 2], d)
    assert abs(np.median(overlap) - median) < 0.01
    turned = angle_between(shaken[:, 3], frames[:, 3])
    assert 0.95 * JITTER[level].angle < turned.max() <= JITTER[level].angle


def test_jitter_is_drawn_afresh_for_each_view():
    rng = np.random.default_rng(0)
    frames = [random_frames(rng, 100), np.empty((0, 4)), np.empty((0, 4))]
    out, ids = project_frames(
        frames,
        [(400, 400)] * 3,
        homography_maps([np.eye(3)] * 3),
        [(0, 1), (0, 2)],
        rng,
        jitter=JITTER["hard"],
    )
    _, a, b = np.intersect1d(ids[1], ids[2], return_indices=True)
    assert len(a) > 20 and (out[1][a] != out[2][b]).all()


def test_circle_overlap_by_counting_pixels():
    y, x = np.mgrid[-200:200, -200:400]
    for r, R, d in [(50, 80, 60), (50, 80, 10), (50, 80, 131), (80, 80, 0), (80, 50, 40)]:
        a, b = np.hypot(x, y) <= r, np.hypot(x - d, y) <= R
        expected = (a & b).sum() / (a | b).sum()
        assert circle_overlap(*np.array([[r], [R], [d]], float))[0] == pytest.approx(
            expected, abs=0.005
        )


def test_distinct_keeps_one_of_each_cluster():
    rng = np.random.default_rng(0)
    frames = random_frames(rng, 500, side=150)
    keep = distinct(frames, rng)

    def overlap(a, b):
        d = np.linalg.norm(a[:, None, :2] - b[None, :, :2], axis=2)
        return circle_overlap(a[:, None, 2] / 2, b[None, :, 2] / 2, d)

    among = overlap(frames[keep], frames[keep])
    np.fill_diagonal(among, 0)
    assert (among <= 0.5).all()
    assert (overlap(frames[~keep], frames[keep]).max(axis=1) > 0.5).all()
    assert not distinct(frames, rng, taken=frames).any()
    assert distinct(np.empty((0, 4)), rng).shape == (0,)


# -------------------------------------------------------------------------------- detectors


def blob_and_corner():
    y, x = np.mgrid[:200, :300].astype(float)
    image = 60 + 150 * np.exp(-((x - 80) ** 2 + (y - 90) ** 2) / (2 * 6.0**2))
    image[100:, 200:] = 200
    return cv2.GaussianBlur(image, (0, 0), 1).astype(np.uint8)


def test_hessian_finds_the_blob_at_its_scale():
    frames = detect(blob_and_corner(), ("hessian",), 1)
    np.testing.assert_allclose(frames[0, :2], [80, 90], atol=1)
    # det H of a Gaussian of deviation s is greatest at scale s.
    assert 6 / 2 ** (1 / 3) <= frames[0, 2] / 2 <= 6 * 2 ** (1 / 3)


def test_harris_finds_the_corner():
    frames = detect(blob_and_corner(), ("harris",), 50)
    assert np.linalg.norm(frames[:, :2] - [200, 100], axis=1).min() < 5


@pytest.mark.parametrize("kind", ["dog", "hessian", "harris"])
def test_detectors_turn_with_the_image(photo, kind):
    image = photo[:300, 100:400]
    turned = np.ascontiguousarray(np.rot90(image, -1))  # clockwise: (x, y) -> (299 - y, x)
    H = np.array([[0, -1, 299.0], [1, 0, 0], [0, 0, 1]])
    predicted = transfer_frames(detect(image, (kind,), 300), homography_map(H))
    pairs, _ = candidate_pairs(
        predicted, detect(turned, (kind,), 300), Tolerance(1, 0, 1.05, angle=3)
    )
    assert len(np.unique(pairs[:, 0])) > 0.8 * len(predicted) > 50


def test_detect_counts_and_refuses(photo):
    assert 0 < len(detect(photo, ("harris", "hessian"), 20)) <= 40
    assert detect(np.zeros((50, 50), np.uint8), ("dog", "harris", "hessian")).shape == (0, 4)
    for bad in ((), ("surf",)):
        with pytest.raises(ValueError, match="detectors must be"):
            detect(photo, bad)


# ----------------------------------------------------------------------------- sequences


@pytest.fixture(scope="module")
def sequence(tmp_path_factory, photo):
    """Three images of a part of the photograph with their homographies, on disk."""
    photo = photo[60:380, 80:400]
    folder = tmp_path_factory.mktemp("v_camera")
    turn = cv2.getRotationMatrix2D((160, 160), 20, 0.8)
    H_1tok = [
        np.eye(3),
        np.vstack([turn, [0, 0, 1]]),
        np.array([[1, 0.1, 0], [0, 1, 9], [1e-4, 0, 1]]),
    ]
    for k, H in enumerate(H_1tok, start=1):
        cv2.imwrite(str(folder / f"{k}.png"), cv2.warpPerspective(photo, H, (320, 320)))
        if k > 1:
            np.savetxt(folder / f"H_1_{k}", H)
    return folder, H_1tok


def test_hpatches_detected(sequence):
    folder, H_1tok = sequence
    scene = hpatches_scene(folder, frames="detected", detectors=("dog",), jitter=None)
    assert scene.name == folder.name and len(scene.views) == 3
    for i, j in itertools.combinations(range(3), 2):
        pairs = scene.pairs(i, j)
        assert len(pairs) > 100
        a, b = scene.views[i].frames[pairs[:, 0]], scene.views[j].frames[pairs[:, 1]]
        expected = transfer_frames(a, homography_maps(H_1tok)(i, j))
        d = np.linalg.norm(expected[:, :2] - b[:, :2], axis=1)
        assert (d <= np.maximum(2.5, 0.15 * expected[:, 2]) + 1e-9).all()
        assert np.median(d) < 0.7
        assert (np.abs(np.log(expected[:, 2] / b[:, 2])) <= np.log(1.5)).all()
        assert (angle_between(expected[:, 3], b[:, 3]) <= 30).all()
    detected = detect(read_gray(folder / "2.png"), ("dog",))
    assert {tuple(f) for f in scene.views[1].frames} <= {tuple(f) for f in detected}


def test_hpatches_projected(sequence):
    folder, H_1tok = sequence
    exact = hpatches_scene(folder, jitter=None)
    pairs = exact.pairs(0, 2)
    expected = transfer_frames(exact.views[0].frames[pairs[:, 0]], homography_map(H_1tok[2]))
    np.testing.assert_allclose(exact.views[2].frames[pairs[:, 1]], expected)
    assert [len(view.frames) for view in exact.views] == [len(pairs)] * 3

    off = {}
    for level in ("easy", "hard", "tough"):
        scene = hpatches_scene(folder, jitter=level, seed=3, detectors=("dog",))
        rows = scene.pairs(0, 2)
        a, b = scene.views[0].frames[rows[:, 0]], scene.views[2].frames[rows[:, 1]]
        expected = transfer_frames(a, homography_map(H_1tok[2]))
        off[level] = np.median(np.linalg.norm(expected[:, :2] - b[:, :2], axis=1) / b[:, 2])
    assert 0.1 < off["easy"] < off["hard"] < off["tough"] < 1


def test_scenes_repeat_with_their_seed(sequence):
    folder, _ = sequence
    a, b, c = (
        hpatches_scene(folder, detectors=("dog",), max_frames=300, seed=seed) for seed in (5, 5, 6)
    )
    for x, y in zip(a.views, b.views, strict=True):
        np.testing.assert_array_equal(x.frames, y.frames)
        np.testing.assert_array_equal(x.point_ids, y.point_ids)
    assert not np.array_equal(a.views[1].frames, c.views[1].frames)


def test_max_frames_keeps_whole_points(sequence):
    folder, _ = sequence
    scene = hpatches_scene(folder, max_frames=100)
    ids = np.concatenate([view.point_ids for view in scene.views])
    assert 90 < len(ids) <= 100
    points, count = np.unique(ids, return_counts=True)
    assert (count >= 2).all() and points.tolist() == list(range(len(points)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frames": "exact"}, "frames must be"),
        ({"jitter": "harder"}, "jitter must be"),
        ({"frames": "detected", "jitter": "easy"}, "jitter must be None"),
        ({"max_keypoints": 0}, "max_keypoints"),
        ({"max_frames": 1}, "max_frames"),
    ],
)
def test_builders_refuse(sequence, photo, tmp_path, change, message):
    for build in (
        lambda: hpatches_scene(sequence[0], **change),
        lambda: warp_scene(photo, **change),
        lambda: sfm_scene(sequence[0], tmp_path, **change),
    ):
        with pytest.raises(ValueError, match=message):
            build()


# ------------------------------------------------------------------------ single photographs


def cut(image, frame, P=24):
    x, y, size, angle = frame
    k, a, c = 6 * size / P, np.radians(angle), (P - 1) / 2
    M = k * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    M = np.column_stack([M, [x, y] - M @ [c, c]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    patch = cv2.warpAffine(cv2.GaussianBlur(image, (0, 0), 1.5), M, (P, P), flags=flags)
    patch = patch.astype(float) - patch.mean()
    return patch / (np.linalg.norm(patch) + 1e-9)


@pytest.mark.parametrize("frames", ["detected", "projected"])
def test_warp_scene_pairs_look_alike(photo, frames):
    # At SIFT's keypoints, which lie further apart than the strongest of ours.
    scene = warp_scene(photo, 3, seed=0, frames=frames, max_keypoints=400, detectors=("sift",))
    assert len(scene.views) == 3 and scene.views[0].load() is photo
    pairs = scene.pairs(0, 1)
    assert len(pairs) > 60
    a, b = (
        np.stack([cut(view.load(), frame).ravel() for frame in view.frames[rows]])
        for view, rows in zip(scene.views, pairs.T, strict=False)
    )
    same, other = (a * b).sum(axis=1), (a * np.roll(b, len(b) // 2, axis=0)).sum(axis=1)
    assert np.median(same) > 0.8
    assert np.median(other) < 0.4


def test_warp_scene_repeats_with_its_seed(photo):
    a, b, c = (warp_scene(photo, 2, seed=seed, max_keypoints=100) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.views[1].load(), b.views[1].load())
    np.testing.assert_array_equal(a.views[1].frames, b.views[1].frames)
    assert not np.array_equal(a.views[1].load(), c.views[1].load())


def test_warp_scene_changes_the_light(photo):
    scene = warp_scene(photo, 6, seed=0, max_keypoints=50)
    means = [view.load().mean() for view in scene.views]
    assert np.ptp(means) > 20


def test_warp_scene_takes_a_path_and_refuses(tmp_path, photo):
    cv2.imwrite(str(tmp_path / "man.png"), photo)
    assert warp_scene(tmp_path / "man.png", 2, max_keypoints=100).name == "man"
    with pytest.raises(ValueError, match="n_views"):
        warp_scene(photo, 1)
    with pytest.raises(ValueError, match="gray uint8"):
        warp_scene(photo.astype(np.float32))


def test_random_homographies_keep_the_image_in_front():
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0], [639, 0], [0, 479], [639, 479]])
    for _ in range(200):
        mapped, J = homography_map(random_homography((480, 640), rng))(corners)
        assert np.isfinite(mapped).all()
        assert (np.linalg.det(J) > 0).all()


# ---------------------------------------------------------------------- structure from motion

FOCAL, CENTRE = 500.0, np.array([320.0, 240.0])


def turned(degrees):
    """A rotation about the vertical axis."""
    a = np.radians(degrees)
    return np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])


def pinhole(R, t, points, ids):
    return Camera(
        (480, 640),
        lambda xy: (xy - CENTRE) / FOCAL,
        lambda rays: rays * FOCAL + CENTRE,
        R,
        t,
        points[ids],
        ids,
    )


def pixels(camera, points):
    local = points @ camera.R.T + camera.t
    return camera.pixels_from_rays(local[:, :2] / local[:, 2:])


@pytest.fixture
def slanted_plane():
    """800 points of the plane z = 5 + 0.5 x + 0.2 y and two cameras that see them all."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (800, 3)) * [1.2, 1, 0]
    points[:, 2] = 5 + 0.5 * points[:, 0] + 0.2 * points[:, 1]
    ids = np.arange(800)
    R = turned(12)
    return [
        pinhole(np.eye(3), np.zeros(3), points, ids),
        pinhole(R, np.array([-1.0, 0.1, 0.3]), points, ids),
    ], points


def test_surface_map_of_a_plane_is_its_homography(slanted_plane):
    cameras, points = slanted_plane
    # n . X = 1 on the plane, so x_2 ~ K (R + t n^T) K^-1 x_1.
    n = np.array([-0.5, -0.2, 1]) / 5
    np.testing.assert_allclose(points @ n, 1)
    K = np.array([[FOCAL, 0, CENTRE[0]], [0, FOCAL, CENTRE[1]], [0, 0, 1]])
    H_0to1 = K @ (cameras[1].R + np.outer(cameras[1].t, n)) @ np.linalg.inv(K)
    xy = np.random.default_rng(1).uniform([200, 150], [440, 330], (100, 2))
    surface = SurfaceMap(cameras)
    mapped, J = surface.point_map(0, 1)(xy)
    expected, expected_J = homography_map(H_0to1)(xy)
    np.testing.assert_allclose(mapped, expected, atol=1e-4)
    np.testing.assert_allclose(J, expected_J, atol=1e-3)
    returned, _ = surface.point_map(1, 0)(mapped)
    np.testing.assert_allclose(returned, xy, atol=1e-3)


def test_surface_map_forgives_single_outliers_and_knows_its_error(slanted_plane):
    cameras, points = slanted_plane
    xy = np.random.default_rng(1).uniform([200, 150], [440, 330], (100, 2))
    exact, _ = SurfaceMap(cameras).point_map(0, 1)(xy)
    rng = np.random.default_rng(2)
    some = points.copy()
    some[rng.permutation(800)[:40]] *= 1.2  # one in twenty at a wrong depth
    mapped, _ = SurfaceMap([c._replace(points=some) for c in cameras]).point_map(0, 1)(xy)
    seen = np.isfinite(mapped[:, 0])
    assert seen.mean() > 0.9
    assert np.linalg.norm(mapped - exact, axis=1)[seen].max() < 1
    rough = points * rng.uniform(0.85, 1.15, (800, 1))  # no surface at all
    mapped, _ = SurfaceMap([c._replace(points=rough) for c in cameras]).point_map(0, 1)(xy)
    assert np.isnan(mapped).all()


def test_surface_map_needs_neighbours_near_and_seen_in_both(slanted_plane):
    cameras, points = slanted_plane
    xy = pixels(cameras[0], points[:50])
    blind = cameras[1]._replace(points=points[:0], point3d_ids=np.arange(0))
    assert np.isnan(SurfaceMap([cameras[0], blind]).point_map(0, 1)(xy)[0]).all()
    assert np.isfinite(SurfaceMap([cameras[0], blind], support=0).point_map(0, 1)(xy)[0]).all()
    mapped, _ = SurfaceMap([cameras[0], blind], support=0).point_map(1, 0)(xy)
    assert np.isnan(mapped).all()  # no points to fit a plane to
    far = np.array([[-2000.0, 100.0]])
    assert np.isnan(SurfaceMap(cameras).point_map(0, 1)(far)[0]).all()
    assert SurfaceMap([cameras[0], blind]).view_pairs() == []
    assert SurfaceMap(cameras).view_pairs() == [(0, 1)]


def test_what_is_hidden_in_the_other_view_is_not_predicted():
    """A plate before a wall: the second camera, to the side, sees the plate over the wall."""
    rng = np.random.default_rng(0)
    wall = np.column_stack([rng.uniform(-4, 4, (4000, 2)), np.full(4000, 10.0)])
    plate = np.column_stack([rng.uniform(-0.5, 0.5, (600, 2)), np.full(600, 5.0)])
    points = np.concatenate([wall, plate])
    cameras = []
    for x in (0.0, 1.0):  # a camera at (x, 0, 0) sees the plate before part of the wall
        shadow = points[:, :2] - (points[:, :2] - [x, 0]) / 2  # where the ray crosses z = 5
        hidden = (points[:, 2] == 10) & (np.abs(shadow) <= 0.5).all(axis=1)
        cameras.append(pinhole(np.eye(3), np.array([-x, 0, 0]), points, np.flatnonzero(~hidden)))
    surface = SurfaceMap(cameras, support=0)
    # Wall points at the side of the plate, free in the first view, covered in the second.
    X = np.column_stack([rng.uniform(-1.7, -1.3, 50), rng.uniform(-0.6, 0.6, 50), np.full(50, 10)])
    frames = np.column_stack([pixels(cameras[0], X), np.full(50, 5.0), np.zeros(50)])
    there, back = surface.point_map(0, 1), surface.point_map(1, 0)
    carried = transfer_frames(frames, there)
    np.testing.assert_allclose(carried[:, :2], pixels(cameras[1], X), atol=1e-3)
    assert np.isnan(predict_frames(frames, there, back, 2.5)).all()


def open_book(side=384, n_views=6):
    """Two textured pages at a right angle, seen from an arc; images and page homographies."""
    pages = [data.brick()[:256, :256], data.gravel()[:256, :256]]
    K = np.array([[1.1 * side, 0, side / 2], [0, 1.1 * side, side / 2], [0, 0, 1.0]])
    images, H_pages = [], []
    for degrees in np.linspace(-18, 18, n_views):
        R = turned(degrees)
        t = np.array([0, 0, 2.6]) + R @ np.zeros(3)
        canvas = np.full((side, side), 128, np.uint8)
        H_view = []
        for page, sign in zip(pages, (-1, 1), strict=True):
            # Page pixels (u, v) -> the page in space: hinge at x = 0, opening towards the camera.
            a = np.sqrt(0.5) / 256
            axis_u = np.array([sign * a, 0, -a])
            corner = np.array([0, -0.5, 0.3])
            to_camera = np.column_stack([R @ axis_u, R @ [0, 1 / 256, 0], R @ corner + t])
            H = K @ to_camera
            H_view.append(H)
            texture = page if sign > 0 else np.ascontiguousarray(page[:, ::-1])
            inside = cv2.warpPerspective(np.full_like(page, 255), H, (side, side))
            seen = cv2.warpPerspective(texture, H, (side, side), flags=cv2.INTER_AREA)
            canvas = np.where(inside == 255, seen, canvas)
        images.append(canvas)
        H_pages.append(H_view)
    return images, H_pages


@pytest.mark.slow
def test_sfm_scene_of_an_open_book(tmp_path):
    """From photographs to correspondences, checked against the pages' own homographies."""
    pytest.importorskip("pycolmap")
    images, H_pages = open_book()
    folder, workspace = tmp_path / "book", tmp_path / "work"
    folder.mkdir()
    for k, image in enumerate(images):
        cv2.imwrite(str(folder / f"{k}.png"), image)
    (folder / "broken.jpg").write_bytes(b"no photograph")

    def build(**options):
        with pytest.warns(UserWarning, match=r"broken\.jpg"):
            return sfm_scene(folder, workspace, camera="single", max_keypoints=800, **options)

    for kind in ("detected", "projected"):
        scene = build(frames=kind)
        assert scene.name == "book" and len(scene.views) == len(images)
        order = [int(view.image.stem) for view in scene.views]
        pairs = scene.pairs(1, 4)
        assert len(pairs) > 80
        a, b = scene.views[1].frames[pairs[:, 0]], scene.views[4].frames[pairs[:, 1]]
        off = []
        for page in range(2):
            H = H_pages[order[4]][page] @ np.linalg.inv(H_pages[order[1]][page])
            off.append(np.linalg.norm(homography_map(H)(a[:, :2])[0] - b[:, :2], axis=1))
        off = np.nanmin(off, axis=0)
        assert np.median(off) < 1
        assert np.mean(off < 4) > 0.97

    # A finished scene is read back: nothing of the reconstruction is needed for it.
    (model,) = workspace.glob("reconstruction-*")
    model.rename(tmp_path / "aside")
    again = build(frames="projected")
    np.testing.assert_array_equal(again.views[0].frames, scene.views[0].frames)
    (tmp_path / "aside").rename(model)
    # Another setting of the frames uses the same model, and makes another scene.
    before = (model / "database.db").stat().st_mtime_ns
    other = build(frames="projected", jitter="easy")
    assert (model / "database.db").stat().st_mtime_ns == before
    assert not np.array_equal(other.views[0].frames, scene.views[0].frames)
    stored = sorted(workspace.glob("scene-*.npz"))
    assert len(stored) == 3
    assert all(isinstance(Scene.load(path, folder), Scene) for path in stored)


def test_pixels_of_a_reconstruction_are_opencv_s():
    """COLMAP's principal point of a 640 x 480 camera is (320, 240), OpenCV's (319.5, 239.5)."""
    pycolmap = pytest.importorskip("pycolmap")
    lens = pycolmap.Camera(
        model="SIMPLE_RADIAL", width=640, height=480, params=[500.0, 320.0, 240.0, 0.05]
    )
    to_pixels, to_rays = pixels_from_rays(lens), rays_from_pixels(lens)
    rays = np.array([[0.0, 0.0], [0.2, 0.0], [np.nan, 0.0]])
    expected = [[319.5, 239.5], [319.5 + 500 * 0.2 * (1 + 0.05 * 0.2**2), 239.5]]
    np.testing.assert_allclose(to_pixels(rays)[:2], expected)
    assert np.isnan(to_pixels(rays)[2]).all()
    np.testing.assert_allclose(to_rays(to_pixels(rays[:2])), rays[:2], atol=1e-9)


def test_sfm_needs_photographs_of_one_place(tmp_path, photo):
    pytest.importorskip("pycolmap")
    cv2.imwrite(str(tmp_path / "a.png"), photo)
    cv2.imwrite(str(tmp_path / "b.png"), photo)
    with pytest.raises(ValueError, match="3 photographs or more"):
        sfm_scene(tmp_path, tmp_path / "work")
    with pytest.raises(ValueError, match="camera must be"):
        sfm_scene(tmp_path, tmp_path / "work", camera="fisheye")
    rng = np.random.default_rng(0)
    for name in "abc":  # nothing in common
        noise = rng.integers(0, 256, (30, 30), dtype=np.uint8)
        cv2.imwrite(str(tmp_path / f"{name}.png"), cv2.resize(noise, (200, 200)))
    with pytest.raises(ValueError, match="share too few"):
        sfm_scene(tmp_path, tmp_path / "work")


def test_sfm_without_pycolmap_names_the_extra(tmp_path, photo, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pycolmap", None)
    for name in "abc":
        cv2.imwrite(str(tmp_path / f"{name}.png"), photo)
    with pytest.raises(ImportError, match=r"pip install kd-cv\[sfm\]"):
        sfm_scene(tmp_path, tmp_path / "work")
