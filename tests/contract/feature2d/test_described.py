"""What a descriptor depends on: border, size, angle, scales; and rows of bytes."""

import cv2
import numpy as np
import pytest
from of_feature2d import OPENCV, is_table, unchanged

from kd_cv import KDDescriptor
from kd_cv.descriptor import describer
from kd_cv.descriptor.frames import describable
from kd_cv.descriptor.patches import as_scales
from kd_cv.extractor import to_uint8
from kd_cv.keypoints import from_keypoints, to_keypoints

HOPELESS = [
    (np.nan, 50.0, 5.0, 0.0),
    (50.0, np.nan, 5.0, 0.0),
    (np.inf, 50.0, 5.0, 0.0),
    (50.0, -np.inf, 5.0, 0.0),
    (50.0, 50.0, np.nan, 0.0),
    (50.0, 50.0, np.inf, 0.0),
    (50.0, 50.0, 5.0, np.nan),
    (50.0, 50.0, 0.0, 0.0),
    (50.0, 50.0, -3.0, 0.0),
    (1e6, 1e6, 5.0, 0.0),
    (-5000.0, 50.0, 5.0, 0.0),
    (50.0, 50.0, 1e-45, 0.0),
    (50.0, 50.0, 2.0**24, 0.0),
    (3.4e38, 3.4e38, 3.4e38, 3.4e38),
]


def same_keypoints(kept, given):
    np.testing.assert_array_equal(from_keypoints(kept), from_keypoints(given))
    return True


@pytest.mark.parametrize("whitening", [None, "ws"])
def test_what_cannot_be_described_is_kept_with_a_zero_row(camera, keypoints, fitted, whitening):
    feature = KDDescriptor(whitening=whitening, weights=fitted, drop=False)
    expected = feature.compute(camera, keypoints[:2])[1]
    hopeless = [cv2.KeyPoint(*row) for row in HOPELESS]
    given = [keypoints[0], *hopeless, keypoints[1]]
    kept, rows = feature.compute(camera, given)
    assert same_keypoints(kept, given) and is_table(rows, len(given), feature)
    assert not rows[1:-1].any() and np.array_equal(rows[[0, -1]], expected)


@pytest.mark.skipif(OPENCV < 5, reason="cv2.SIFT of OpenCV 4.10 corrupts its memory on these")
def test_sift_keeps_them_too(sift, kd, camera, keypoints):
    chosen = [row for row in HOPELESS[:-3] if np.isfinite(row[2:]).all()]
    given = [keypoints[0], *(cv2.KeyPoint(*row) for row in chosen)]
    for feature in (sift, kd.with_settings(drop=False)):
        kept, rows = feature.compute(camera, given)
        assert same_keypoints(kept, given)
        assert rows[0].any() and not rows[1:].any()


@pytest.mark.parametrize("whitening", [None, "ws"])
def test_drop_leaves_them_out(camera, keypoints, fitted, whitening):
    feature = KDDescriptor(whitening=whitening, weights=fitted)
    expected = KDDescriptor(whitening=whitening, weights=fitted).compute(camera, keypoints)[1]
    hopeless = [cv2.KeyPoint(*row) for row in HOPELESS]
    given = [*keypoints[:3], *hopeless, *keypoints[3:]]
    kept, rows = feature.compute(camera, given)
    assert unchanged(kept, keypoints) and np.array_equal(rows, expected)
    assert feature.compute(camera, hopeless) == ((), None)
    flat = np.full_like(camera, 9)
    assert feature.compute(flat, keypoints) == ((), None)


@pytest.mark.parametrize(
    "settings, size",
    [
        ({"magnification": 1e60}, 5.0),
        ({"magnification": 1e308}, 1e38),
        ({"magnification": 1e308, "scales": (10.0,)}, 5.0),
        ({"scales": (1e300,)}, 0.0),
        ({"magnification": 5e-324}, 0.1),
        ({"patch_size": 16}, 3.4e38),
    ],
)
def test_patches_out_of_all_proportion_give_zero_rows(camera, keypoints, settings, size):
    feature = KDDescriptor(**settings, drop=False)
    for image in (camera, camera[:1], camera[:, :1]):
        kept, rows = feature.compute(image, [cv2.KeyPoint(0.0, 0.0, size)])
        assert len(kept) == 1 and is_table(rows, 1, feature) and not rows.any()


def test_the_largest_patch_is_described_on_both_paths(camera, monkeypatch):
    largest = cv2.KeyPoint(200.0, 250.0, 2.0**20)
    assert describable(from_keypoints([largest]), camera.shape, 16.0).all()
    kd = KDDescriptor(magnification=16.0, drop=False)
    for image in (camera[:, :300], camera[:1], camera[:, :1]):
        rows = [kd.compute(image, [largest])[1]]
        with monkeypatch.context() as patch:
            patch.setattr(describer, "load_compiled", lambda: None)
            rows.append(kd.compute(image, [largest])[1])
        assert np.isfinite(rows).all()
        assert rows[0].any() == rows[1].any()
        np.testing.assert_allclose(*rows, atol=1e-3)


def test_a_patch_across_the_border_is_described(kd, camera):
    corners = [(0, 0), (511, 0), (0, 511), (511, 511), (-20, 250)]
    _, rows = kd.compute(camera, [cv2.KeyPoint(*map(float, xy), 12.0) for xy in corners])
    assert rows.any(axis=1).all() and np.isfinite(rows).all()


@pytest.mark.parametrize("whitening", [None, "ws"])
def test_flat_patches_give_zero_rows(fitted, whitening):
    feature = KDDescriptor(whitening=whitening, weights=fitted, drop=False)
    points = [cv2.KeyPoint(float(x), 50.0, s) for x in (20, 50, 90) for s in (1.0, 4.0, 30.0)]
    for value in (0, 17, 255):
        for dtype in (np.uint8, np.float32, np.uint16):
            rows = feature.compute(np.full((100, 120), value, dtype), points)[1]
            assert is_table(rows, len(points), feature) and not rows.any()


def test_angle_is_clockwise_in_degrees(camera):
    kd = KDDescriptor(whitening=None)
    angles = [0.0, 10.0, 45.0, 90.0, 200.0, 350.0]
    points = [cv2.KeyPoint(250.0, 180.0, 6.0, a) for a in angles]
    turned = np.ascontiguousarray(np.rot90(camera, -1))  # clockwise: (x, y) -> (511 - y, x)
    moved = [cv2.KeyPoint(511.0 - 180.0, 250.0, 6.0, (a + 90) % 360) for a in angles]
    rows = kd.compute(camera, points)[1]
    # OpenCV halves both images at their even pixels, which are not the same scene points.
    assert (rows * kd.compute(turned, moved)[1]).sum(axis=1).min() > 0.99
    assert (rows * np.roll(rows, 1, axis=0)).sum(axis=1).max() < 0.99


def test_angle_agrees_with_sift(sift, kd, camera, keypoints):
    # Both see a turned copy of the photograph alike if the angles of the keypoints turn with it.
    turned = np.ascontiguousarray(np.rot90(camera, -1))
    chosen = [k for k in keypoints if k.size > 4][:60]
    for feature in (sift, kd):
        rows = feature.compute(camera, chosen)[1]
        similar = {}
        for turn in (90, -90):
            moved = [
                cv2.KeyPoint(511 - k.pt[1], k.pt[0], k.size, (k.angle + turn) % 360, 1, k.octave)
                for k in chosen
            ]
            other = feature.compute(turned, moved)[1]
            similar[turn] = np.mean(np.linalg.norm(rows - other, axis=1))
        assert similar[90] < 0.5 * similar[-90]


def test_minus_one_and_the_option_mean_upright(camera, keypoints, kd):
    frames = from_keypoints(keypoints)
    frames[:, 3] = 0.0
    zero = kd.compute(camera, to_keypoints(frames))[1]
    frames[:, 3] = -1.0
    assert np.array_equal(kd.compute(camera, to_keypoints(frames))[1], zero)
    frames[:, 3] = 359.0
    assert not np.array_equal(kd.compute(camera, to_keypoints(frames))[1], zero)
    kept, rows = KDDescriptor(upright=True).compute(camera, keypoints)
    assert np.array_equal(rows, zero) and unchanged(kept, keypoints)


def test_the_side_of_the_patch_is_magnification_times_size(camera, keypoints):
    frames = from_keypoints(keypoints)
    frames[:, 2] *= 2
    twice = KDDescriptor(magnification=6).compute(camera, to_keypoints(frames))[1]
    assert np.array_equal(KDDescriptor(magnification=12).compute(camera, keypoints)[1], twice)
    for name, value in (("sift", 6), ("extract_patches", 10), ("kornia", 12)):
        assert np.array_equal(
            KDDescriptor(magnification=name).compute(camera, keypoints[:9])[1],
            KDDescriptor(magnification=value).compute(camera, keypoints[:9])[1],
        )


def test_octave_and_response_are_ignored(kd, camera, keypoints):
    other = [cv2.KeyPoint(*k.pt, k.size, k.angle, 9.0, i * 77, i) for i, k in enumerate(keypoints)]
    kept, rows = kd.compute(camera, other)
    assert unchanged(kept, other)
    assert np.array_equal(rows, kd.compute(camera, keypoints)[1])


def test_scales_by_count_and_by_factor(camera, keypoints):
    assert as_scales(1) == (1.0,) and as_scales((0.5, 2)) == (0.5, 2.0)
    assert as_scales(3) == (0.625, 1.0, 1.6)
    assert len(as_scales(np.int64(5))) == 5
    by_count = KDDescriptor(scales=3).compute(camera, keypoints)[1]
    by_factor = KDDescriptor(scales=as_scales(3)).compute(camera, keypoints)[1]
    assert np.array_equal(by_count, by_factor)
    single = KDDescriptor(scales=1).compute(camera, keypoints)[1]
    assert np.array_equal(KDDescriptor(scales=(1.0,)).compute(camera, keypoints)[1], single)
    assert not np.allclose(by_count, single, atol=0.01)


def nearest(d0, d1):
    """Index in d1 of the nearest neighbour of each row of d0, as BFMatcher finds it."""
    return np.array([m.trainIdx for m in cv2.BFMatcher(cv2.NORM_L2).match(d0, d1)])


@pytest.mark.slow
@pytest.mark.parametrize("whitening", [None, "ws", "wus", "pcasqrt"])
def test_bytes_rank_like_floats(pairs, fitted, whitening):
    floats, bytes_ = (
        KDDescriptor(whitening=whitening, weights=fitted, descriptor_type=t)
        for t in (cv2.CV_32F, cv2.CV_8U)
    )
    assert bytes_.descriptorType() == cv2.CV_8U and bytes_.defaultNorm() == cv2.NORM_L2
    assert bytes_.descriptorSize() == floats.descriptorSize()
    same = []
    for pair in pairs:
        f0, f1 = (floats.compute(*seen)[1] for seen in pair)
        b0, b1 = (bytes_.compute(*seen)[1] for seen in pair)
        assert is_table(b0, len(f0), bytes_, np.uint8)
        same.append(nearest(f0, f1) == nearest(b0, b1))
    assert np.concatenate(same).mean() >= 0.98
    assert min(s.mean() for s in same) >= 0.96  # an image of many near ties


def test_bytes_of_rows_that_describe_nothing_are_zero(camera, keypoints):
    feature = KDDescriptor(descriptor_type=cv2.CV_8U, drop=False)
    kept, rows = feature.compute(camera, [keypoints[0], cv2.KeyPoint(1e6, 1e6, 3)])
    assert is_table(rows, 2, feature, np.uint8) and rows[0].any() and not rows[1].any()
    buffer = np.zeros_like(rows)
    assert feature.compute(camera, kept, buffer)[1] is buffer and buffer.any()
    assert to_uint8(np.zeros((0, 128), np.float32)).shape == (0, 128)


def test_bytes_saturate_rather_than_wrap():
    rows = np.zeros((2, 128), np.float32)
    rows[0, 0], rows[1, 0] = 1.0, -1.0
    assert to_uint8(rows)[:, :2].tolist() == [[255, 128], [0, 128]]
