"""`compute` as cv2.Feature2D has it; cv2.SIFT is asked in the same test."""

import cv2
import numpy as np
import pytest
from of_feature2d import is_table, unchanged, values

from kd_cv import KDDescriptor
from kd_cv.keypoints import from_keypoints


@pytest.mark.slow
def test_compute_gives_new_keypoints_and_an_array(both, camera, keypoints):
    result = both.compute(camera, keypoints)
    assert type(result) is tuple and len(result) == 2
    assert unchanged(result[0], keypoints) and is_table(result[1], len(keypoints), both)


@pytest.mark.slow
def test_compute_by_keyword(both, camera, keypoints):
    expected = both.compute(camera, keypoints)[1]
    kept, rows = both.compute(image=camera, keypoints=keypoints, descriptors=None)
    assert unchanged(kept, keypoints) and np.array_equal(rows, expected)


@pytest.mark.parametrize("sequence", [list, tuple, lambda k: np.array(k, dtype=object)])
def test_any_sequence_of_keypoints(both, camera, keypoints, sequence):
    kept, rows = both.compute(camera, sequence(keypoints[:5]))
    assert unchanged(kept, keypoints[:5]) and is_table(rows, 5, both)


def test_order_duplicates_and_class_id_are_kept(both, camera, keypoints):
    chosen = [keypoints[i] for i in (7, 3, 3, 11, 7)]
    chosen.append(cv2.KeyPoint(100.25, 80.5, 5, 30, 0.5, 258, 42))
    kept, rows = both.compute(camera, chosen)
    assert unchanged(kept, chosen) and kept[-1].class_id == 42
    assert np.array_equal(rows[1], rows[2]) and np.array_equal(rows[0], rows[4])


def test_rows_are_unit_vectors(kd, camera, keypoints):
    rows = kd.compute(camera, keypoints)[1]
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_a_buffer_of_the_exact_shape_is_filled_and_returned(both, camera, keypoints):
    expected = both.compute(camera, keypoints)[1]
    buffer = np.zeros_like(expected)
    rows = both.compute(camera, keypoints, buffer)[1]
    assert rows is buffer and np.array_equal(buffer, expected)
    buffer[:] = 0
    found, rows = both.detectAndCompute(camera, None, descriptors=np.zeros((1, 1), np.float32))
    assert is_table(rows, len(found), both)


@pytest.mark.parametrize("shape, dtype", [((3, 3), np.float32), (None, np.float64)])
def test_another_buffer_is_silently_replaced(both, camera, keypoints, shape, dtype):
    shape = shape or (len(keypoints), both.descriptorSize())
    buffer = np.zeros(shape, dtype)
    rows = both.compute(camera, keypoints, buffer)[1]
    assert rows is not buffer and not buffer.any() and is_table(rows, len(keypoints), both)


def test_a_read_only_buffer_is_refused(both, camera, keypoints):
    buffer = np.zeros((len(keypoints), both.descriptorSize()), np.float32)
    buffer.flags.writeable = False
    with pytest.raises((cv2.error, ValueError), match=r"read-?only"):
        both.compute(camera, keypoints, buffer)


@pytest.mark.parametrize("nothing", [[], (), None])
def test_no_keypoints(both, camera, nothing):
    assert both.compute(camera, nothing) == ((), None)


@pytest.mark.parametrize("image", [None, np.zeros((0, 0), np.uint8), np.zeros((0, 9), np.uint8)])
def test_no_image(both, image, keypoints):
    kept, rows = both.compute(image, keypoints)
    assert unchanged(kept, keypoints) and rows is None
    assert both.detect(image) == ()


def test_detect_and_compute_of_no_image(both):
    with pytest.raises((cv2.error, TypeError)):
        both.detectAndCompute(None, None)


def test_an_empty_umat(kd, keypoints):
    kept, rows = kd.compute(cv2.UMat(), keypoints)
    assert unchanged(kept, keypoints) and rows is None and kd.detect(cv2.UMat()) == ()


def test_one_pixel(kd):
    # cv2.SIFT of OpenCV 4.10 corrupts its memory here.
    image = np.full((1, 1), 7, np.uint8)
    assert kd.compute(image, [cv2.KeyPoint(0, 0, 3)]) == ((), None)
    assert kd.detect(image) == () and kd.detectAndCompute(image, None) == ((), None)


@pytest.mark.parametrize("shape", [(1, 40), (40, 1), (2, 2), (3, 50)])
def test_tiny_images(kd, shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    keeping = kd.with_settings(drop=False)
    kept, rows = keeping.compute(image, [cv2.KeyPoint(1, 1, 2), cv2.KeyPoint(0, 0, 50)])
    assert len(kept) == 2 and is_table(rows, 2, kd) and np.isfinite(rows).all() and rows.any()


@pytest.mark.slow
def test_lists_of_images(both, camera, bgr):
    images = [camera, bgr]
    found = both.detect(images)
    assert type(found) is tuple and [type(f) for f in found] == [tuple, tuple]
    for one, image in zip(found, images, strict=True):
        assert [values(k) for k in one] == [values(k) for k in both.detect(image)]
    kept, rows = both.compute(images, found)
    assert type(kept) is tuple and type(rows) is tuple
    for i in range(2):
        assert unchanged(kept[i], found[i]) and is_table(rows[i], len(found[i]), both)
        assert np.array_equal(rows[i], both.compute(images[i], found[i])[1])


def test_lists_with_masks_and_with_empty_entries(both, camera, keypoints):
    mask = np.zeros_like(camera)
    mask[:200] = 255
    upper, none = both.detect([camera, camera], [mask, np.zeros_like(mask)])
    assert upper and max(k.pt[1] for k in upper) <= 200 and none == ()
    kept, rows = both.compute([camera, camera], [keypoints, []])
    assert len(kept[0]) == len(keypoints) and kept[1] == ()
    assert is_table(rows[0], len(keypoints), both) and rows[1] is None
    assert both.detect([]) == () and both.compute([], []) == ((), ())


def test_lists_of_different_lengths_raise(both, camera, keypoints):
    with pytest.raises((cv2.error, ValueError)):
        both.compute([camera, camera], [keypoints])
    with pytest.raises((cv2.error, ValueError)):
        both.detect([camera, camera], [np.ones_like(camera)])


def test_lists_of_different_lengths_say_so(kd, camera, keypoints):
    with pytest.raises(ValueError, match="2 images need as many lists of keypoints, got 1"):
        kd.compute([camera, camera], [keypoints])
    with pytest.raises(ValueError, match="1 images need as many lists of keypoints, got NoneType"):
        kd.compute([camera], None)
    with pytest.raises(ValueError, match="2 images need as many masks, got 3"):
        kd.detect([camera, camera], [None] * 3)


def test_detect_and_compute_takes_no_list(both, camera):
    with pytest.raises((cv2.error, TypeError)):
        both.detectAndCompute([camera, camera], None)


def test_umat(both, camera, keypoints):
    expected = both.compute(camera, keypoints)[1]
    kept, rows = both.compute(cv2.UMat(camera), keypoints)
    assert unchanged(kept, keypoints) and isinstance(rows, cv2.UMat)
    np.testing.assert_allclose(rows.get(), expected, atol=1e-6 * expected.max())
    kept, rows = both.detectAndCompute(cv2.UMat(camera), None)
    assert isinstance(kept, tuple) and isinstance(rows, cv2.UMat)
    assert rows.get().shape == (len(kept), both.descriptorSize())


@pytest.mark.slow
def test_colour_equals_its_gray(both, bgr):
    gray = cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY)
    found = both.detect(gray)
    expected = both.compute(gray, found)[1]
    for image in (bgr, cv2.cvtColor(bgr, cv2.COLOR_BGR2BGRA), gray[:, :, None]):
        assert [values(k) for k in both.detect(image)] == [values(k) for k in found]
        assert np.array_equal(both.compute(image, found)[1], expected)


@pytest.mark.slow
def test_float_and_16_bit_images_are_an_extension(sift, camera, keypoints):
    kd = KDDescriptor(whitening=None)
    _, expected = kd.compute(camera, keypoints)
    for image in (
        camera / 255.0,
        (camera / 255.0).astype(np.float32),
        camera.astype(np.float64),
        camera.astype(np.uint16) * 257,
    ):
        with pytest.raises(cv2.error):
            sift.compute(image, keypoints)
        _, rows = kd.compute(image, keypoints)
        # The levels of an 8-bit pyramid are rounded to whole gray levels; those of floats are not.
        assert (rows * expected).sum(axis=1).min() > 0.98
        small = np.array([k.size < 3 for k in keypoints])  # read from the image itself
        np.testing.assert_allclose(rows[small], expected[small], atol=2e-3)
        found, same = from_keypoints(kd.detect(image)), from_keypoints(kd.detect(camera))
        near = np.abs(found[:, None, :3] - same[:, :3]).max(2).min(1) < 0.01
        assert abs(len(found) - len(same)) <= 0.005 * len(same) and near.mean() >= 0.995


@pytest.mark.parametrize("power", [17, 40, 100, 126])
def test_float_images_of_any_gain(camera, keypoints, power):
    kd = KDDescriptor()
    image = camera.astype(np.float32) / 256
    _, expected = kd.compute(image * np.float32(2**16), keypoints)
    for sign in (1, -1):
        _, rows = kd.compute(sign * image * np.float32(2.0**power), keypoints)
        assert np.isfinite(rows).all() and rows.any(axis=1).all()
        if sign > 0:
            assert np.array_equal(rows, expected)
    flat = np.full_like(image, 2.0**power)
    assert kd.compute(flat, keypoints) == ((), None)


def test_the_byte_order_does_not_matter(camera, keypoints):
    kd = KDDescriptor()
    for dtype in ("u2", "f4", "f8"):
        little, big = (camera.astype(order + dtype) for order in "<>")
        assert np.array_equal(kd.compute(big, keypoints)[1], kd.compute(little, keypoints)[1])


@pytest.mark.parametrize("wrong", [3, "ab", [1, 2], np.zeros((3, 2)), {"x": 1}])
def test_what_is_no_keypoint_is_refused(kd, sift, camera, wrong):
    with pytest.raises((cv2.error, TypeError)):
        sift.compute(camera, wrong)
    name = type(wrong).__name__
    with pytest.raises(TypeError, match=rf"must be a sequence of cv2\.KeyPoint, got {name}"):
        kd.compute(camera, wrong)


def test_none_among_the_keypoints_is_refused(kd, camera, keypoints):
    # A trap of cv2.SIFT: it takes None for a keypoint of size 0.
    with pytest.raises(TypeError, match="got None among them"):
        kd.compute(camera, [keypoints[0], None])


def test_a_sequence_that_raises_is_refused(kd, camera):
    class Broken:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            raise RuntimeError("broken")

    with pytest.raises(TypeError, match=r"must be a sequence of cv2\.KeyPoint, got Broken"):
        kd.compute(camera, Broken())


def test_a_list_in_a_list_is_no_image(kd, camera, keypoints):
    endless = []
    endless.append(endless)
    for images in ([[camera]], endless):
        with pytest.raises(TypeError, match=r"NumPy array or cv2\.UMat, got list"):
            kd.detect(images)
        with pytest.raises(TypeError, match=r"NumPy array or cv2\.UMat, got list"):
            kd.compute(images, [keypoints])
