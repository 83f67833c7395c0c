"""Images, keypoints and patches: where each sample lies, and what it sees there."""

import cv2
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kd_cv.descriptor.describer import describe_frames
from kd_cv.descriptor.frames import (
    MAGNIFICATIONS,
    as_frames,
    as_magnification,
    describable,
    patch_regions,
    radians,
)
from kd_cv.descriptor.patches import (
    FADE,
    Pyramid,
    extract_patches,
    max_depth,
    pyramid_for,
    sampling_steps,
)
from kd_cv.descriptor.spec import Spec
from kd_cv.gray import as_gray, to_8bit
from kd_cv.keypoints import from_keypoints, to_keypoints

# Images -------------------------------------------------------------------------------------------


def test_colour_becomes_gray_as_opencv_does_it(bgr):
    gray = cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY)
    assert np.array_equal(as_gray(bgr), gray)
    assert np.array_equal(as_gray(cv2.cvtColor(bgr, cv2.COLOR_BGR2BGRA)), gray)
    assert np.array_equal(as_gray(gray[:, :, None]), gray)
    assert np.array_equal(as_gray(cv2.UMat(bgr)), gray)
    assert np.array_equal(as_gray(bgr[::-1, ::2]), gray[::-1, ::2])


def test_a_gray_image_is_not_copied(camera):
    assert np.shares_memory(as_gray(camera), camera)
    floats = camera.astype(np.float32)
    assert np.shares_memory(as_gray(floats), floats)


def test_sixteen_bits_are_0_to_1():
    image = np.array([[0, 65535], [257, 32768]], np.uint16)
    np.testing.assert_allclose(as_gray(image), [[0, 1], [1 / 255, 0.5]], atol=1e-5)


def test_what_a_detector_sees(camera):
    assert to_8bit(camera) is camera
    for image in (camera / 255.0, camera.astype(np.float64), camera.astype(np.uint16) * 257):
        assert np.array_equal(to_8bit(as_gray(image)), camera)


# Frames -------------------------------------------------------------------------------------------


def test_presets_name_the_known_conventions():
    assert MAGNIFICATIONS == {"sift": 6.0, "extract_patches": 10.0, "kornia": 12.0}
    assert [as_magnification(name) for name in MAGNIFICATIONS] == [6.0, 10.0, 12.0]
    assert as_magnification(7) == 7.0
    with pytest.raises(ValueError, match=r"'surf'.*\['sift', 'extract_patches', 'kornia'\]"):
        as_magnification("surf")


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf])
def test_magnification_must_be_positive(value):
    with pytest.raises(ValueError, match="magnification must be positive and finite, got"):
        as_magnification(value)


single = st.floats(-1e4, 1e4, width=32)


@pytest.mark.slow
@given(st.lists(st.tuples(single, single, single, single), max_size=5))
def test_keypoints_and_frames_round_trip(rows):
    frames = np.array(rows).reshape(-1, 4)
    assert np.array_equal(from_keypoints(to_keypoints(frames)), frames)


def test_from_keypoints_reads_position_size_and_angle(keypoints):
    frames = from_keypoints(keypoints)
    assert frames.shape == (len(keypoints), 4) and frames.dtype == np.float64
    expected = [(*k.pt, k.size, k.angle) for k in keypoints]
    assert np.array_equal(frames, expected)
    assert from_keypoints(()).shape == (0, 4)


@pytest.mark.parametrize("frames", [np.zeros(4), np.zeros((3, 5)), np.zeros((2, 3, 4)), []])
def test_frames_of_a_wrong_shape(frames):
    with pytest.raises(ValueError, match=r"shape \(N, 4\) with columns x, y, size, angle, got \("):
        as_frames(frames)


def test_minus_one_is_upright_and_other_angles_are_literal():
    result = radians(np.array([-1.0, 0.0, 90.0, 359.0, -2.0, 720.0]))
    np.testing.assert_allclose(np.rad2deg(result), [0, 0, 90, 359, -2, 720], atol=1e-12)


def test_which_frames_can_be_described():
    frames = np.array(
        [
            [50, 40, 2, 0],  # inside
            [-11.9, 40, 2, 0],  # side 24: reaches to x = 0.1
            [-12.6, 40, 2, 0],  # the last cell ends at x = -0.6, left of the first pixel
            [-12.6, 40, 2, 45],  # turned, its corner reaches in
            [50, 91.4, 2, 0],
            [50, 91.6, 2, 0],
            [1e6, 1e6, 2, 0],
            [50, 40, 0, 0],
            [50, 40, -3, 0],
            [np.nan, 40, 2, 0],
            [50, np.inf, 2, 0],
            [50, 40, np.nan, 0],
            [50, 40, np.inf, 0],
            [50, 40, 2, np.nan],
        ]
    )
    expected = [True, True, False, True, True] + [False] * 9
    assert describable(frames, (80, 100), 12.0).tolist() == expected
    assert not describable(frames, (0, 0), 12.0)[1:].any()


# Where the samples lie ----------------------------------------------------------------------------


def ramps(side):
    """Images whose value is x, and y: what is sampled is where it was sampled."""
    y, x = np.mgrid[:side, :side].astype(np.float32)
    return x, y


@pytest.mark.slow
@given(
    x=st.floats(300, 700),
    y=st.floats(300, 700),
    size=st.floats(0.1, 30.0),
    angle=st.one_of(st.just(-1.0), st.floats(0, 360)),
    P=st.sampled_from([16, 17, 32, 33, 64]),
    magnification=st.sampled_from([6.0, 10.0, 12.0]),
)
@example(x=500.0, y=500.0, size=32 / 12, angle=-1.0, P=32, magnification=12.0)
@example(x=500.25, y=499.5, size=30.0, angle=45.0, P=16, magnification=12.0)
def test_samples_lie_at_the_centres_of_equal_cells(x, y, size, angle, P, magnification):
    frames = np.array([[x, y, size, angle]])
    # A float image is scaled to a maximum of 1.
    seen_x, seen_y = (1023 * extract_patches(r, frames, P, magnification)[0] for r in ramps(1024))
    # P x P cells of a square of side magnification * size, turned clockwise on the screen.
    pitch = magnification * size / P
    cell = (np.arange(P) + 0.5) * pitch - magnification * size / 2
    u, v = np.meshgrid(cell, cell)
    turn = np.deg2rad(0 if angle == -1 else angle)
    np.testing.assert_allclose(seen_x, x + u * np.cos(turn) - v * np.sin(turn), atol=2e-3)
    np.testing.assert_allclose(seen_y, y + u * np.sin(turn) + v * np.cos(turn), atol=2e-3)


def test_an_odd_patch_at_a_pixel_is_the_crop_around_it(camera):
    patches = extract_patches(camera, [[200, 150, 33 / 12, 0]], 33, 12.0)
    np.testing.assert_allclose(patches[0] * 255, camera[134:167, 184:217], atol=1e-3)
    # An even patch has its centre between four pixels.
    patches = extract_patches(camera, [[200.5, 150.5, 32 / 12, -1]], 32, 12.0)
    np.testing.assert_allclose(patches[0] * 255, camera[135:167, 185:217], atol=1e-3)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_quarter_turn_of_the_frame_turns_the_patch(camera, quarters):
    patch, turned = extract_patches(camera, [[200, 150, 5, 0], [200, 150, 5, 90 * quarters]], 32)
    # A frame turned clockwise sees the scene turned anticlockwise.
    np.testing.assert_allclose(turned, np.rot90(patch, quarters), atol=1e-5)


@pytest.mark.parametrize("centre", [(0, 0), (511, 0), (3, 508), (-10, 250), (250, 525)])
@pytest.mark.parametrize("angle", [0, 30])
def test_outside_the_image_its_border_is_repeated_and_fades_into_the_mean(camera, centre, angle):
    pad = 80
    wide = cv2.copyMakeBorder(camera, pad, pad, pad, pad, cv2.BORDER_REPLICATE)
    frame = np.array([[*centre, 2.6, angle]]) + [pad, pad, 0, 0]
    patch = extract_patches(camera, frame - [pad, pad, 0, 0], 32)
    repeated = extract_patches(wide, frame, 32)
    # How far out the samples are, sampled as an image of its own.
    x, y = np.meshgrid(*2 * [np.arange(-pad, 512 + pad, dtype=np.float32)])
    beyond = np.abs(x - np.clip(x, 0, 511)) + np.abs(y - np.clip(y, 0, 511))
    out = extract_patches(beyond, frame, 32) * beyond.max()
    mean = repeated.mean()
    expected = mean + np.clip(1 - out / FADE, 0, 1) * (repeated - mean)
    # Between the last pixel and the next a bilinear distance is exact, but for the two corners.
    np.testing.assert_allclose(patch, expected, atol=1e-5)
    assert np.abs(patch - mean)[out > FADE].max() < 1e-6 < np.abs(patch - repeated).max()


def test_a_window_inside_the_image_does_not_know_of_the_border(camera):
    inside = np.array([[40.0, 33, 2.4, 33], [471, 300, 2.6, 200]])
    wide = cv2.copyMakeBorder(camera, 64, 64, 64, 64, cv2.BORDER_CONSTANT)
    there = extract_patches(wide, inside + [64, 64, 0, 0], 32)
    np.testing.assert_allclose(extract_patches(camera, inside, 32), there, atol=1e-6)


def test_patches_are_0_to_1_and_zero_where_there_is_none(camera):
    frames = [[100, 100, 4, 20], [np.nan, 3, 4, 0], [9e5, 0, 4, 0], [100, 100, 0, 0]]
    patches = extract_patches(camera, frames, 20)
    assert patches.shape == (4, 20, 20) and patches.dtype == np.float32
    assert 0 < patches[0].min() < patches[0].max() <= 1 and not patches[1:].any()
    as_floats = extract_patches(camera / 255.0, frames, 20)
    np.testing.assert_allclose(as_floats, patches, atol=3e-3)
    assert extract_patches(camera, np.zeros((0, 4)), 20).shape == (0, 20, 20)
    assert extract_patches(np.zeros((0, 0), np.uint8), frames, 20).shape == (4, 20, 20)


# What the samples see -----------------------------------------------------------------------------


@given(size=st.floats(0.1, 300.0), P=st.integers(16, 128))
def test_samples_lie_about_one_pixel_of_their_level_apart(size, P):
    regions = patch_regions(np.array([[500.0, 500.0, size, 33.0]]), (1000, 1000), 12.0)
    steps = sampling_steps(regions, (1000, 1000), P)
    level, x, y, ax, ay = steps[0, 0]
    step = np.hypot(ax, ay)
    assert step * 2**level == pytest.approx(12.0 * size / P)
    assert (x * 2**level, y * 2**level) == pytest.approx((500.0, 500.0))
    assume(level > 0)
    assert 2**-0.5 <= step < 2**0.5 * (1 + 1e-9)


@pytest.mark.parametrize("size", [6, 12, 25, 50, 100])
def test_large_keypoints_do_not_see_stripes_too_fine_for_them(size):
    stripes = np.tile(np.array([0, 255], np.uint8), (600, 300))
    patch = extract_patches(stripes, [[300.3, 300.1, size, 10]], 32)[0]
    assert patch.std() < 0.02, "aliased"
    assert patch.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("factor", [2, 4])
def test_a_large_keypoint_sees_the_reduced_image(photographs, factor):
    image = photographs["astronaut"]
    frames = from_keypoints(cv2.SIFT_create(100).detect(image, None))
    frames = frames[(frames[:, :2] > 120).all(axis=1) & (frames[:, :2] < 390).all(axis=1)]
    frames[:, 2] = 2.0 * factor
    reduced = cv2.resize(image, None, fx=1 / factor, fy=1 / factor, interpolation=cv2.INTER_AREA)
    smaller = frames.copy()
    smaller[:, :2] = (frames[:, :2] + 0.5) / factor - 0.5
    smaller[:, 2] = 2.0
    large, small = extract_patches(image, frames, 32), extract_patches(reduced, smaller, 32)
    assert np.abs(large - small).mean() < 0.025
    correlation = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(large, small, strict=1)]
    assert np.quantile(correlation, 0.05) > 0.95  # a box blurs less than a pyramid


def test_the_pyramid_is_as_deep_as_its_frames_need_and_does_not_copy_the_image(camera):
    for size, depth in ((2.0, 0), (6.0, 1), (12.0, 2), (500.0, 8)):
        regions = patch_regions(np.array([[250.0, 250.0, size, 0.0]]), camera.shape, 12.0)
        steps = sampling_steps(regions, camera.shape, 32)
        pyramid = pyramid_for(camera, steps)
        assert len(pyramid.levels) == depth + 1, size
        assert np.shares_memory(pyramid.finest, camera)
    assert len(pyramid_for(camera, np.full((3, 1, 5), -1.0)).levels) == 1


@pytest.mark.parametrize("shape", [(64, 48), (37, 53), (5, 9), (1, 7), (1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_pyramid_levels_are_opencvs(shape, dtype):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    depth = max_depth(shape)
    pyramid, level = Pyramid.of(image, depth), image
    for index in range(depth + 1):
        assert np.array_equal(pyramid.level(index), level)
        level = cv2.pyrDown(level)
    assert min(pyramid.level(depth).shape) == 1


@pytest.mark.slow
@pytest.mark.parametrize("P", [32, 64])
def test_patches_equal_kornias(photographs, P):
    torch = pytest.importorskip("torch")
    feature = pytest.importorskip("kornia.feature")
    image = photographs["astronaut"]
    rng = np.random.default_rng(0)
    count = 120
    size = np.exp(rng.uniform(np.log(2.0), np.log(16.0), count))
    frames = np.column_stack([rng.uniform(20, 490, (count, 2)), size, rng.uniform(0, 360, count)])
    ours = extract_patches(image, frames, P, 12.0)
    x = torch.from_numpy(frames).float()[None]
    # Kornia's scale is half the side of the patch, and its angle turns the other way.
    lafs = feature.laf_from_center_scale_ori(
        x[..., :2], 6 * x[..., 2, None, None], -x[..., 3, None]
    )
    tensor = torch.from_numpy(image)[None, None] / 255
    theirs = feature.extract_patches_from_pyramid(tensor, lafs, P)[0, :, 0].numpy()
    difference = np.abs(ours - theirs)
    pitch = 12.0 * size / P
    # From the image itself, both read the same pixels; beyond its border each has its own rule.
    turn = np.deg2rad(frames[:, 3])
    reach = (6 * size * (np.abs(np.cos(turn)) + np.abs(np.sin(turn))))[:, None]
    whole = ((frames[:, :2] >= reach) & (frames[:, :2] <= 511 - reach)).all(axis=1)
    same = pitch < 2**0.5 * 0.999
    assert (same & whole).sum() > 20 and difference[same & whole].max() < 1e-4
    # Where both take the same level, the pyramids differ by their filters.
    half_octave = np.log2(pitch) % 1 < 0.499
    level = ~same & half_octave
    inside = ((frames[:, :2] > 100) & (frames[:, :2] < 412)).all(axis=1)
    assert (level & inside).sum() > 3 and difference[level & inside].mean(axis=(1, 2)).max() < 0.02
    # Elsewhere Kornia takes the next finer level, and shows finer detail.
    other = ~same & ~half_octave
    assert (other & whole).sum() > 10 and difference[other & whole].mean() < 0.03
    pairs = zip(ours[whole], theirs[whole], strict=True)
    correlation = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in pairs]
    assert np.min(correlation) > 0.9


# The same scene point, seen again -----------------------------------------------------------------


@pytest.fixture(scope="module")
def textured(photographs):
    """Photographs and their well-textured frames: of a strong response, shown at half size too."""
    images = [photographs[name] for name in ("camera", "astronaut")]
    found = [cv2.SIFT_create(400).detect(image, None) for image in images]
    return [
        (image, from_keypoints([k for k in keypoints if k.response > 0.03 and k.size >= 4]))
        for image, keypoints in zip(images, found, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "degrees, scale, shift",
    [
        (0, 1.0, (0.5, 0.25)),
        (0, 1.0, (0.1, 0.9)),
        (13, 1.0, (0.0, 0.0)),
        (45, 1.0, (0.0, 0.0)),
        (90, 1.0, (0.0, 0.0)),
        (137, 1.0, (0.3, 0.7)),
        (180, 1.0, (0.0, 0.0)),
        (251, 1.0, (0.0, 0.0)),
        (349, 1.0, (0.0, 0.0)),
        (0, 0.5, (0.0, 0.0)),
        (30, 0.6, (0.2, 0.1)),
        (0, 0.71, (0.0, 0.0)),
        (200, 0.84, (0.0, 0.0)),
        (0, 1.19, (0.0, 0.0)),
        (300, 1.41, (0.4, 0.4)),
        (0, 1.68, (0.0, 0.0)),
        (77, 2.0, (0.5, 0.5)),
    ],
)
def test_a_turned_scaled_or_shifted_copy_is_described_alike(
    textured, similarity, degrees, scale, shift
):
    turned, moved = similarity
    for image, frames in textured:
        copy, M = turned(image, degrees, scale, shift)
        again = moved(frames, M)
        whole = np.ones(len(frames), bool)
        for f, shape in ((frames, image.shape), (again, copy.shape)):
            margin = 6 * f[:, 2:3] * np.sqrt(2)  # the patch lies inside, however it is turned
            whole &= ((f[:, :2] > margin) & (f[:, :2] < shape[1] - 1 - margin)).all(axis=1)
        assert whole.sum() > 15
        for P in (32, 64):
            V = describe_frames(image, frames[whole], Spec(P), magnification=12.0)
            W = describe_frames(copy, again[whole], Spec(P), magnification=12.0)
            # 0.95 is asked for; resampling alone costs far less.
            assert (V * W).sum(axis=1).min() > (0.995 if scale == 1 else 0.98)
            assert np.median(V @ W.T) < 0.9, "the descriptor tells points apart"


@given(dx=st.floats(-0.5, 0.5), dy=st.floats(-0.5, 0.5), turn=st.floats(-3.0, 3.0))
def test_a_slightly_wrong_frame_is_described_alike(camera, keypoints, dx, dy, turn):
    frames = from_keypoints([k for k in keypoints if k.response > 0.03 and k.size >= 4])
    other = frames + [dx, dy, 0.0, turn]
    V, W = (describe_frames(camera, f, Spec(32), magnification=12.0) for f in (frames, other))
    assert (V * W).sum(axis=1).min() > 0.98
