"""KDDescriptor keeps the contract of cv2.Feature2D; cv2.SIFT is asked in the same test.

What it shares with the other ways in is in `ways_in`.
"""

import copy
import dataclasses
import gc
import inspect
import pickle
import subprocess
import sys
import textwrap

import cv2
import numpy as np
import pytest

from kd_cv import DoG, KDDescriptor
from kd_cv.collection import Extraction
from kd_cv.descriptor import engine
from kd_cv.descriptor.frames import describable, from_keypoints, to_keypoints
from kd_cv.descriptor.sampling import as_scales
from kd_cv.detector.parameters import DoGSettings
from kd_cv.explain import explain
from kd_cv.settings import Settings, as_uint8
from kd_cv.whitening import save

OPENCV = int(cv2.__version__.split(".")[0])


@pytest.fixture(scope="module")
def kd():
    return KDDescriptor()


@pytest.fixture(scope="module")
def sift():
    return cv2.SIFT_create(300)


@pytest.fixture(params=["kd", "sift"])
def both(request, kd, sift):
    """The test runs on KDDescriptor and on cv2.SIFT: what it asserts holds for both."""
    return kd if request.param == "kd" else sift


def values(keypoint):
    k = keypoint
    return (*k.pt, k.size, k.angle, k.response, k.octave, k.class_id)


def unchanged(kept, given):
    """The same keypoints in the same order, as new objects."""
    assert isinstance(kept, tuple) and len(kept) == len(given)
    assert all(type(k) is cv2.KeyPoint for k in kept)
    assert [values(k) for k in kept] == [values(k) for k in given]
    assert not {id(k) for k in kept} & {id(k) for k in given}
    return True


def is_table(rows, count, feature, dtype=np.float32):
    """One C-contiguous row of the promised size and type for each keypoint."""
    assert type(rows) is np.ndarray and rows.dtype == dtype and rows.flags.c_contiguous
    assert rows.shape == (count, feature.descriptorSize())
    return True


# compute ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compute_gives_new_keypoints_and_an_array(both, camera, keypoints):
    result = both.compute(camera, keypoints)
    assert type(result) is tuple and len(result) == 2
    assert unchanged(result[0], keypoints) and is_table(result[1], len(keypoints), both)


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
    kept, rows = kd.compute(image, [cv2.KeyPoint(0, 0, 3)])
    assert len(kept) == 1 and is_table(rows, 1, kd) and not rows.any()
    assert kd.detect(image) == () and kd.detectAndCompute(image, None) == ((), None)


@pytest.mark.parametrize("shape", [(1, 40), (40, 1), (2, 2), (3, 50)])
def test_tiny_images(kd, shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    kept, rows = kd.compute(image, [cv2.KeyPoint(1, 1, 2), cv2.KeyPoint(0, 0, 50)])
    assert len(kept) == 2 and is_table(rows, 2, kd) and np.isfinite(rows).all() and rows.any()


# detect and detectAndCompute ----------------------------------------------------------------------


def test_detect_gives_a_tuple(both, camera):
    found = both.detect(camera)
    assert type(found) is tuple and len(found) > 100
    assert all(type(k) is cv2.KeyPoint for k in found)
    for again in (both.detect(camera, None), both.detect(image=camera, mask=None)):
        assert [values(k) for k in again] == [values(k) for k in found]


def test_the_default_detector_is_our_own_and_sift_is_a_choice(kd, camera):
    for feature, detector in (
        (kd, DoG()),
        (KDDescriptor(300), DoG(300)),
        (KDDescriptor(detector=DoG(edgeThreshold=20)), DoG(edgeThreshold=20)),
        (KDDescriptor(detector=cv2.SIFT_create(300)), cv2.SIFT_create(300)),
    ):
        expected = [values(k) for k in detector.detect(camera, None)]
        assert [values(k) for k in feature.detect(camera)] == expected
        assert [values(k) for k in feature.detectAndCompute(camera, None)[0]] == expected


def test_the_first_five_parameters_are_those_of_sift(camera):
    arguments = dict(
        nfeatures=200, nOctaveLayers=4, contrastThreshold=0.03, edgeThreshold=8.0, sigma=1.7
    )
    named, placed = KDDescriptor(**arguments), KDDescriptor(*arguments.values())
    sift = cv2.SIFT_create(*arguments.values())
    for feature in (named, placed, copy.copy(named), pickle.loads(pickle.dumps(named))):
        for name in ("NFeatures", "NOctaveLayers", "ContrastThreshold", "EdgeThreshold", "Sigma"):
            assert getattr(feature, f"get{name}")() == getattr(sift, f"get{name}")()
        assert len(feature.detect(camera)) == 200
    assert repr(placed) == f"KDDescriptor({', '.join(f'{k}={v}' for k, v in arguments.items())})"
    placed.setNFeatures(50)
    assert len(placed.detectAndCompute(camera, None)[0]) == 50
    assert len(placed.with_settings(nfeatures=20, upright=True).detect(camera)) == 20
    with pytest.raises(ValueError, match="nfeatures must be from 0"):
        KDDescriptor(-5)
    with pytest.raises(ValueError, match="give them to ORB"):
        KDDescriptor(500, detector=cv2.ORB_create())


def test_upright_keypoints_are_found_once_and_without_an_angle(camera):
    kept, rows = KDDescriptor(upright=True).detectAndCompute(camera, None)
    assert {k.angle for k in kept} == {-1.0}
    places = {(k.pt, k.size) for k in kept}
    assert len(places) == len(kept) == len(rows) < len(KDDescriptor().detect(camera))
    assert places == {(k.pt, k.size) for k in KDDescriptor().detect(camera)}


def test_detect_and_compute_is_detect_then_compute(both, camera):
    kept, rows = both.detectAndCompute(camera, None)
    found = both.detect(camera)
    assert unchanged(kept, found) and is_table(rows, len(found), both)
    if isinstance(both, KDDescriptor):  # SIFT builds another pyramid for compute
        assert np.array_equal(rows, both.compute(camera, found)[1])


def test_the_mask_is_a_mandatory_argument(both, camera):
    with pytest.raises((cv2.error, TypeError)):
        both.detectAndCompute(camera)


def test_use_provided_keypoints(kd, sift, camera):
    assert sift.detectAndCompute(camera, None, None, True) == ((), None)  # a trap
    with pytest.raises(ValueError, match=r"useProvidedKeypoints.*call compute\(image, keypoints\)"):
        kd.detectAndCompute(camera, None, useProvidedKeypoints=True)


def test_nothing_found(both):
    flat = np.full((60, 80), 128, np.uint8)
    assert both.detect(flat) == () and both.detectAndCompute(flat, None) == ((), None)


def test_mask(both, camera):
    mask = np.zeros_like(camera)
    mask[100:300, 200:400] = 255
    for m in (mask, mask[:, :, None]):
        found = both.detect(camera, m)
        assert found and all(199 <= k.pt[0] <= 400 and 99 <= k.pt[1] <= 300 for k in found)
        kept, rows = both.detectAndCompute(camera, m)
        assert unchanged(kept, found) and is_table(rows, len(found), both)
    assert both.detect(camera, np.zeros_like(camera)) == ()
    assert both.detectAndCompute(camera, np.zeros_like(camera)) == ((), None)


@pytest.mark.parametrize("dtype", [bool, np.float32, np.int32, np.uint16])
def test_masks_of_other_types_raise(both, camera, dtype):
    if dtype is bool and OPENCV < 5 and not isinstance(both, KDDescriptor):
        pytest.skip("OpenCV 4 takes a bool mask for bytes or not, by version")
    with pytest.raises((cv2.error, TypeError)):
        both.detect(camera, np.ones(camera.shape, dtype))


@pytest.mark.parametrize(
    "mask, error, message",
    [
        (np.ones((512, 512), bool), TypeError, "a mask must be a uint8 array, got bool"),
        ("mask.png", TypeError, "a mask must be a uint8 array, got str"),
        (np.ones((10, 10), np.uint8), ValueError, r"\(512, 512\), got \(10, 10\)"),
        (np.ones((512, 511), np.uint8), ValueError, r"\(512, 512\), got \(512, 511\)"),
        (np.ones((512, 512, 3), np.uint8), ValueError, r"\(512, 512\), got \(512, 512, 3\)"),
        (np.ones(512 * 512, np.uint8), ValueError, r"\(512, 512\), got \(262144,\)"),
    ],
)
def test_a_wrong_mask_is_refused_with_a_reason(kd, sift, camera, mask, error, message):
    for call in (kd.detect, kd.detectAndCompute):
        with pytest.raises(error, match=message):
            call(camera, mask)
    if isinstance(mask, np.ndarray) and mask.shape == (10, 10):
        assert isinstance(sift.detect(camera, mask), tuple)  # a trap: silently accepted


@pytest.mark.slow
def test_any_object_with_detect_is_a_detector(camera):
    for detector in (cv2.ORB_create(100), cv2.FastFeatureDetector_create(50), cv2.MSER_create()):
        feature = KDDescriptor(detector=detector)
        kept, rows = feature.detectAndCompute(camera, None)
        assert unchanged(kept, detector.detect(camera, None))
        assert is_table(rows, len(kept), feature) and rows.any(axis=1).mean() > 0.95

    class Corners:
        def detect(self, image, mask):
            assert image.dtype == np.uint8 and image.ndim == 2
            return [cv2.KeyPoint(float(x), 100.0, 8.0) for x in (100, 200, 300)]

    kept, rows = KDDescriptor(detector=Corners()).detectAndCompute(camera / 255.0, None)
    assert type(kept) is tuple and rows.shape[0] == 3
    with pytest.raises(TypeError, match=r"detector must have a method detect.*got str"):
        KDDescriptor(detector="sift")


# Lists of images ----------------------------------------------------------------------------------


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


# Images -------------------------------------------------------------------------------------------


def test_umat(both, camera, keypoints):
    expected = both.compute(camera, keypoints)[1]
    kept, rows = both.compute(cv2.UMat(camera), keypoints)
    assert unchanged(kept, keypoints) and isinstance(rows, cv2.UMat)
    np.testing.assert_allclose(rows.get(), expected, atol=1e-6 * expected.max())
    kept, rows = both.detectAndCompute(cv2.UMat(camera), None)
    assert isinstance(kept, tuple) and isinstance(rows, cv2.UMat)
    assert rows.get().shape == (len(kept), both.descriptorSize())


def test_colour_equals_its_gray(both, bgr):
    gray = cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY)
    found = both.detect(gray)
    expected = both.compute(gray, found)[1]
    for image in (bgr, cv2.cvtColor(bgr, cv2.COLOR_BGR2BGRA), gray[:, :, None]):
        assert [values(k) for k in both.detect(image)] == [values(k) for k in found]
        assert np.array_equal(both.compute(image, found)[1], expected)


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
        assert abs(len(found) - len(same)) < 5 and near.mean() > 0.99


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
    assert not kd.compute(flat, keypoints)[1].any()


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


# What it says of itself ---------------------------------------------------------------------------


def test_answers(kd, sift):
    assert kd.descriptorType() == sift.descriptorType() == cv2.CV_32F
    assert kd.defaultNorm() == sift.defaultNorm() == cv2.NORM_L2
    assert kd.empty() is sift.empty() is True
    assert kd.getDefaultName() == "Feature2D.KD" and sift.getDefaultName() == "Feature2D.SIFT"
    for kernel, size in (("concat", 238), ("polar", 175), ("cart", 63)):
        assert KDDescriptor(kernel=kernel, whitening=None).descriptorSize() == size


def test_it_has_every_public_name_of_feature2d(kd):
    names = [name for name in dir(cv2.Feature2D) if not name.startswith("_")]
    assert {"compute", "detect", "detectAndCompute", "descriptorSize", "write"} <= set(names)
    for name in names:
        assert callable(getattr(kd, name)), name
    assert kd.clear() is None


def test_the_constructor_is_the_designs():
    parameters = inspect.signature(KDDescriptor).parameters
    names = "patch_size kernel whitening weights dim magnification scales descriptor_type detector"
    assert list(parameters) == [*OF_SIFT, *names.split(), "upright", "orient", "drop"]
    for name, parameter in parameters.items():
        assert (parameter.kind is inspect.Parameter.KEYWORD_ONLY) == (name not in OF_SIFT)
    for field in (*dataclasses.fields(Settings), *dataclasses.fields(DoGSettings)):
        default = parameters[field.name].default
        assert (as_scales(default) if field.name == "scales" else default) == field.default
    defaults = {name: p.default for name, p in parameters.items()}
    assert (defaults["patch_size"], defaults["kernel"], defaults["dim"]) == (32, "concat", 128)
    assert (defaults["magnification"], defaults["descriptor_type"]) == (None, cv2.CV_32F)
    assert Settings().side == 15.0
    assert (defaults["scales"], defaults["detector"], defaults["upright"]) == (1, None, False)


def test_create_is_the_constructor(camera, keypoints):
    created = KDDescriptor.create(patch_size=24, kernel="cart", whitening=None)
    assert type(created) is KDDescriptor and created.descriptorSize() == 63
    expected = KDDescriptor(patch_size=24, kernel="cart", whitening=None)
    assert np.array_equal(
        created.compute(camera, keypoints)[1], expected.compute(camera, keypoints)[1]
    )


def test_repr_names_the_settings(fitted):
    assert repr(KDDescriptor()) == "KDDescriptor()"
    for name, value in VARIED.items():
        assert repr(KDDescriptor(**{name: value})) == f"KDDescriptor({name}={value!r})"
    assert repr(KDDescriptor(whitening="wus", weights=fitted, detector=cv2.ORB_create())) == (
        "KDDescriptor(whitening='wus', weights=Whitening, detector=ORB)"
    )
    assert eval(repr(KDDescriptor(**VARIED))).settings == KDDescriptor(**VARIED).settings


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"kernel": "xy"}, ValueError, r"unknown kernel 'xy'.*'concat', 'polar', 'cart'"),
        ({"whitening": "zca"}, ValueError, r"whitening 'zca'.*w, wua, wus, ws, wm, pcasqrt"),
        ({"whitening": "ws", "weights": "mars"}, ValueError, "unknown weights 'mars'"),
        ({"whitening": "ws", "weights": 3}, TypeError, "weights must be .* got int"),
        ({"weights": "no.npz"}, FileNotFoundError, r"no file of weights .no\.npz.; shipped are m"),
        ({"patch_size": 8}, ValueError, "patch_size must be from 16 to 128, got 8"),
        ({"patch_size": 32.5}, TypeError, r"patch_size must be an int, got 32\.5"),
        ({"dim": 0}, ValueError, "dim must be a positive int, got 0"),
        ({"magnification": -1}, ValueError, "magnification must be positive and finite, got -1"),
        ({"magnification": "orb"}, ValueError, "unknown magnification 'orb'.*'sift'"),
        ({"magnification": []}, TypeError, r"magnification must be a number, got \[\]"),
        ({"magnification": 10**400}, ValueError, "magnification must be positive and finite"),
        ({"scales": 0}, ValueError, "scales must be from 1 to 100, got 0"),
        ({"scales": 10**9}, ValueError, "scales must be from 1 to 100, got 1000000000"),
        ({"scales": 2.5}, TypeError, r"scales must be a count or positive factors, got 2\.5"),
        ({"scales": "abc"}, TypeError, "scales must be a count or positive factors, got 'abc'"),
        ({"scales": ["a"]}, TypeError, "a factor of scales must be a number, got 'a'"),
        ({"scales": ()}, ValueError, "scales must be a count or positive factors"),
        ({"scales": (1.0, -2.0)}, ValueError, "scales must be a count or positive factors"),
        ({"descriptor_type": cv2.CV_64F}, ValueError, r"descriptor_type must be cv2\.CV_32F"),
        ({"descriptor_type": np.zeros(2)}, ValueError, r"descriptor_type must be cv2\.CV_32F"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(arguments, error, message):
    with pytest.raises(error, match=message):
        KDDescriptor(**arguments)


# Never a subclass ---------------------------------------------------------------------------------


def test_isinstance_without_inheritance(kd):
    assert isinstance(kd, cv2.Feature2D) and isinstance(kd, KDDescriptor)
    assert type(kd) is KDDescriptor and cv2.Feature2D not in type(kd).__mro__


@pytest.mark.slow
def test_it_survives_collection_and_the_hands_of_cpp(kd, camera, keypoints):
    program = """
        import gc, cv2
        from kd_cv import KDDescriptor
        for _ in range(200):
            KDDescriptor(whitening=None)
        gc.collect()
        assert cv2.AffineFeature_create(cv2.SIFT_create()) is not None  # what C++ does take
        try:
            cv2.AffineFeature_create(KDDescriptor(whitening=None))
        except (TypeError, cv2.error):
            print("refused")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["refused"]
    gc.collect()
    assert kd.compute(camera, keypoints)[1].any()


# Border, size, angle, octave, neighbours ----------------------------------------------------------

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
]


def same_keypoints(kept, given):
    np.testing.assert_array_equal(from_keypoints(kept), from_keypoints(given))
    return True


@pytest.mark.parametrize("whitening", [None, "ws"])
def test_what_cannot_be_described_is_kept_with_a_zero_row(camera, keypoints, fitted, whitening):
    feature = KDDescriptor(whitening=whitening, weights=fitted)
    expected = feature.compute(camera, keypoints[:2])[1]
    hopeless = [cv2.KeyPoint(*row) for row in HOPELESS]
    given = [keypoints[0], *hopeless, keypoints[1]]
    kept, rows = feature.compute(camera, given)
    assert same_keypoints(kept, given) and is_table(rows, len(given), feature)
    assert not rows[1:-1].any() and np.array_equal(rows[[0, -1]], expected)


@pytest.mark.skipif(OPENCV < 5, reason="cv2.SIFT of OpenCV 4.10 corrupts its memory on these")
def test_sift_keeps_them_too(sift, kd, camera, keypoints):
    chosen = [row for row in HOPELESS if np.isfinite(row[2]) and np.isfinite(row[3])]
    given = [keypoints[0], *(cv2.KeyPoint(*row) for row in chosen)]
    for feature in (sift, kd):
        kept, rows = feature.compute(camera, given)
        assert same_keypoints(kept, given)
        assert rows[0].any() and not rows[1:].any()


@pytest.mark.parametrize("whitening", [None, "ws"])
def test_drop_leaves_them_out(camera, keypoints, fitted, whitening):
    feature = KDDescriptor(whitening=whitening, weights=fitted, drop=True)
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
    feature = KDDescriptor(**settings)
    for image in (camera, camera[:1], camera[:, :1]):
        kept, rows = feature.compute(image, [cv2.KeyPoint(0.0, 0.0, size)])
        assert len(kept) == 1 and is_table(rows, 1, feature) and not rows.any()


def test_the_largest_patch_is_described_on_both_paths(camera, monkeypatch):
    largest = cv2.KeyPoint(200.0, 250.0, 2.0**20)
    assert describable(from_keypoints([largest]), camera.shape, 16.0).all()
    kd = KDDescriptor(magnification=16.0)
    for image in (camera[:, :300], camera[:1], camera[:, :1]):
        rows = [kd.compute(image, [largest])[1]]
        with monkeypatch.context() as patch:
            patch.setattr(engine, "load_fused", lambda: None)
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
    feature = KDDescriptor(whitening=whitening, weights=fitted)
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


# Several scales -----------------------------------------------------------------------------------


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


# Bytes --------------------------------------------------------------------------------------------


def nearest(d0, d1):
    """Index in d1 of the nearest neighbour of each row of d0, as BFMatcher finds it."""
    return np.array([m.trainIdx for m in cv2.BFMatcher(cv2.NORM_L2).match(d0, d1)])


@pytest.fixture(scope="module")
def pairs(photographs, similarity):
    """Photographs and their turned copies, each with its keypoints."""
    turned, _ = similarity
    images = [photographs[n] for n in ("camera", "gravel", "astronaut", "grass", "rocket")]
    pairs = [(image, turned(image, degrees=20, scale=0.8)[0]) for image in images]
    detector = cv2.SIFT_create(500)
    return [[(image, detector.detect(image, None)) for image in pair] for pair in pairs]


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
    feature = KDDescriptor(descriptor_type=cv2.CV_8U)
    kept, rows = feature.compute(camera, [keypoints[0], cv2.KeyPoint(1e6, 1e6, 3)])
    assert is_table(rows, 2, feature, np.uint8) and rows[0].any() and not rows[1].any()
    buffer = np.zeros_like(rows)
    assert feature.compute(camera, kept, buffer)[1] is buffer and buffer.any()
    assert as_uint8(np.zeros((0, 128), np.float32)).shape == (0, 128)


def test_bytes_saturate_rather_than_wrap():
    rows = np.zeros((2, 128), np.float32)
    rows[0, 0], rows[1, 0] = 1.0, -1.0
    assert as_uint8(rows)[:, :2].tolist() == [[255, 128], [0, 128]]


# Matchers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [cv2.CV_32F, cv2.CV_8U])
def test_opencvs_matchers_take_the_descriptors(camera, kind):
    feature = KDDescriptor(descriptor_type=kind)
    _, rows = feature.detectAndCompute(camera, None)
    pairs = cv2.BFMatcher(feature.defaultNorm()).knnMatch(rows, rows, k=2)
    assert np.mean([m.queryIdx == m.trainIdx or m.distance == 0 for m, _ in pairs]) == 1
    if kind == cv2.CV_32F:
        matcher = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50})
        assert len(matcher.knnMatch(rows, rows, k=2)) == len(rows)


# Copies and files ---------------------------------------------------------------------------------

OF_SIFT = ["nfeatures", "nOctaveLayers", "contrastThreshold", "edgeThreshold", "sigma"]
VARIED = {
    "patch_size": 24,
    "kernel": "polar",
    "whitening": None,
    "magnification": 8.3,
    "scales": (0.7, 1 / 3, 1.5),
    "descriptor_type": cv2.CV_8U,
    "upright": True,
    "drop": True,
}


def equal(a, b, image, keypoints):
    """The same settings and the same descriptors."""
    assert a.settings == b.settings and a.descriptorSize() == b.descriptorSize()
    return np.array_equal(a.compute(image, keypoints)[1], b.compute(image, keypoints)[1])


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_pickle_and_copies(camera, keypoints, fitted, duplicate):
    for feature in (KDDescriptor(), KDDescriptor(**VARIED)):
        assert type(duplicate(feature)) is KDDescriptor
        assert equal(duplicate(feature), feature, camera, keypoints)
    whitened = KDDescriptor(whitening="ws", weights=fitted, dim=64)
    again = duplicate(whitened)
    assert again.descriptorSize() == 64
    assert np.array_equal(
        again.compute(camera, keypoints)[1], whitened.compute(camera, keypoints)[1]
    )


class Named(KDDescriptor):
    """A subclass with an argument of its own."""

    def __init__(self, name, **settings):
        super().__init__(**settings)
        self.name = name


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_copies_of_a_subclass_are_of_the_subclass(camera, keypoints, duplicate):
    feature = Named("mine", patch_size=24)
    assert isinstance(feature, KDDescriptor) and isinstance(feature, cv2.Feature2D)
    again = duplicate(feature)
    assert type(again) is Named and again.name == "mine"
    assert equal(again, feature, camera, keypoints)
    assert type(feature.with_settings(upright=True)) is Named
    assert repr(again) == "Named(patch_size=24)"


def test_subclasses_are_explained_and_extracted(camera, keypoints):
    feature, plain = Named("mine", patch_size=24), KDDescriptor(patch_size=24)
    why = explain(camera, keypoints[0], camera, keypoints[1], feature)
    assert why.similarity == explain(camera, keypoints[0], camera, keypoints[1], plain).similarity
    rows, expected = (Extraction(kd).features(camera).descriptors for kd in (feature, plain))
    assert type(Extraction(feature).feature) is Named and np.array_equal(rows, expected)
    assert Extraction(feature).settings == Extraction(plain).settings


def test_opencv_itself_cannot_be_pickled(sift):
    with pytest.raises(TypeError):
        pickle.dumps(sift)


def test_a_descriptor_with_a_detector(camera):
    feature = KDDescriptor(detector=cv2.ORB_create(50))
    for again in (copy.copy(feature), copy.deepcopy(feature)):
        assert len(again.detect(camera)) == len(feature.detect(camera)) <= 50
    with pytest.raises(TypeError, match=r"own detector \(ORB\) cannot be pickled"):
        pickle.dumps(feature)
    ours = KDDescriptor(detector=DoG(50))
    assert len(pickle.loads(pickle.dumps(ours)).detect(camera)) == 50


def test_settings_of_the_detector_are_written_and_read(tmp_path):
    for feature in (KDDescriptor(), KDDescriptor(77, 4, 0.02, 12.5, 2.5)):
        feature.write(tmp_path / "kd.yml")
        other = KDDescriptor(5, patch_size=16)
        other.read(tmp_path / "kd.yml")
        assert repr(other) == repr(feature)
    text = (tmp_path / "kd.yml").read_text()
    (tmp_path / "bad.yml").write_text(text.replace("sigma: 2.5", "sigma: 99."))
    with pytest.raises(ValueError, match="sigma must be from 1 to 16"):
        other.read(tmp_path / "bad.yml")
    assert repr(other) == repr(feature)
    lines = [line for line in text.splitlines() if not line.strip().startswith(tuple(OF_SIFT))]
    (tmp_path / "old.yml").write_text("\n".join(lines) + "\n")  # of before there was a detector
    other.read(tmp_path / "old.yml")
    assert repr(other) == "KDDescriptor()"


@pytest.mark.parametrize("name", ["kd.yml", "kd.yaml", "kd.xml", "kd.json"])
@pytest.mark.parametrize("method", ["write", "save"])
def test_write_and_read(tmp_path, camera, keypoints, name, method):
    for feature in (KDDescriptor(), KDDescriptor(**VARIED)):
        for path in (tmp_path / name, str(tmp_path / name)):
            assert getattr(feature, method)(path) is None
            other = KDDescriptor(patch_size=16, kernel="cart", whitening=None)
            assert other.read(path) is None
            assert equal(other, feature, camera, keypoints)
    assert "Feature2D.KD" in (tmp_path / name).read_text()
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_write_and_read_with_weights(tmp_path, camera, keypoints, fitted):
    save(tmp_path / "w.npz", {("concat", 32): fitted})
    for weights in (str(tmp_path / "w.npz"), tmp_path / "w.npz"):
        feature = KDDescriptor(whitening="wus", weights=weights, dim=80)
        feature.write(tmp_path / "kd.yml")
        other = KDDescriptor(whitening=None)
        other.read(tmp_path / "kd.yml")
        assert other.descriptorSize() == 80 and equal(other, feature, camera, keypoints)


def test_write_and_read_through_file_storage(tmp_path, camera, keypoints):
    path, feature = str(tmp_path / "all.yml"), KDDescriptor(**VARIED)
    storage = cv2.FileStorage(path, cv2.FILE_STORAGE_WRITE)
    cv2.SIFT_create(77).write(storage, "sift")
    feature.write(storage, "kd")
    storage.release()
    storage = cv2.FileStorage(path, cv2.FILE_STORAGE_READ)
    other = KDDescriptor()
    other.read(storage.getNode("kd"))
    assert equal(other, feature, camera, keypoints)
    with pytest.raises(ValueError, match=r"no settings of Feature2D\.KD"):
        other.read(storage.getNode("sift"))
    with pytest.raises(ValueError, match=r"no settings of Feature2D\.KD"):
        other.read(storage.getNode("nothing"))
    assert equal(other, feature, camera, keypoints)


def test_files_that_cannot_be_written_or_read(tmp_path, fitted, sift):
    feature = KDDescriptor(whitening="ws", weights=fitted)
    (tmp_path / "kept.yml").write_text("mine")
    with pytest.raises(ValueError, match="weights given as Whitening cannot be written"):
        feature.write(tmp_path / "kept.yml")
    assert (tmp_path / "kept.yml").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="no directory"):
        KDDescriptor().write(tmp_path / "nowhere" / "kd.yml")
    with pytest.raises(IsADirectoryError):
        KDDescriptor().write(tmp_path)
    with pytest.raises(OSError, match=r"cannot read .*missing\.yml"):
        KDDescriptor().read(tmp_path / "missing.yml")
    sift.write(str(tmp_path / "sift.yml"))
    with pytest.raises(ValueError, match=r"no settings of Feature2D\.KD"):
        KDDescriptor().read(tmp_path / "sift.yml")
    with pytest.raises((OSError, ValueError)):
        KDDescriptor().read(tmp_path / "kept.yml")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.yml", "sift.yml"]


def test_a_read_that_fails_changes_nothing(tmp_path, camera, keypoints):
    feature = KDDescriptor(**VARIED)
    feature.write(tmp_path / "kd.yml")
    text = (tmp_path / "kd.yml").read_text()
    for good, bad in (("patch_size: 24", "patch_size: 7"), ('whitening: ""', 'whitening: "zca"')):
        assert good in text
        (tmp_path / "bad.yml").write_text(text.replace(good, bad))
        other = KDDescriptor()
        with pytest.raises(ValueError):
            other.read(tmp_path / "bad.yml")
        assert equal(other, KDDescriptor(), camera, keypoints)


def test_more_dimensions_than_the_matrices_have():
    # All there are, for every kernel alike.
    assert KDDescriptor(dim=500).descriptorSize() == 128
    assert KDDescriptor(kernel="cart", dim=500).descriptorSize() == 63
