"""What KDDescriptor says of itself, and that it is no subclass."""

import dataclasses
import gc
import inspect
import subprocess
import sys
import textwrap

import cv2
import numpy as np
import pytest
from of_feature2d import OF_SIFT, VARIED

from kd_cv import KDDescriptor
from kd_cv.descriptor.patches import as_scales
from kd_cv.detector.settings import DoGSettings
from kd_cv.settings import Settings


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
    del (parameters := dict(parameters))["too_many"]  # which get an error
    assert list(parameters) == [*OF_SIFT, *names.split(), "upright", "orient", "drop", "views"]
    for name, parameter in parameters.items():
        assert (parameter.kind is inspect.Parameter.KEYWORD_ONLY) == (name not in OF_SIFT)
    for field in (*dataclasses.fields(Settings), *dataclasses.fields(DoGSettings)):
        if not field.repr:
            continue
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
    assert inspect.signature(KDDescriptor.create) == inspect.signature(KDDescriptor)
    expected = KDDescriptor(patch_size=24, kernel="cart", whitening=None)
    assert np.array_equal(
        created.compute(camera, keypoints)[1], expected.compute(camera, keypoints)[1]
    )


@pytest.mark.slow
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
        ({"dim": 0}, ValueError, "dim must be from 1 to 2147483647, got 0"),
        ({"dim": 2**31}, ValueError, "dim must be from 1 to 2147483647, got 2147483648"),
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


@pytest.mark.parametrize("kind", [cv2.CV_32F, cv2.CV_8U])
def test_opencvs_matchers_take_the_descriptors(camera, kind):
    feature = KDDescriptor(descriptor_type=kind)
    _, rows = feature.detectAndCompute(camera, None)
    pairs = cv2.BFMatcher(feature.defaultNorm()).knnMatch(rows, rows, k=2)
    assert np.mean([m.queryIdx == m.trainIdx or m.distance == 0 for m, _ in pairs]) == 1
    if kind == cv2.CV_32F:
        matcher = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50})
        assert len(matcher.knnMatch(rows, rows, k=2)) == len(rows)
