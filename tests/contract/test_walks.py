"""The way of an image through the files: few of them, and none that it comes back to."""

import sys
from collections import Counter

import cv2
import pytest

import kd_cv
from kd_cv import KDDescriptor

PACKAGE = kd_cv.__path__[0]


def files_entered(function, *arguments):
    """The files of the package whose functions a call runs, in order, each stretch once."""
    walk = []

    def note(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            short = name[len(PACKAGE) + 1 : -len(".py")].split("/")[-1]
            if walk[-1:] != [short]:
                walk.append(short)

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
        cv2.setNumThreads(before)
    return walk


@pytest.mark.parametrize("settings", [{}, {"scales": 3, "upright": True}, {"whitening": None}])
def test_compute_passes_few_modules(camera, keypoints, settings):
    pytest.importorskip("numba")
    kd = KDDescriptor(**settings)
    kd.compute(camera, keypoints)  # the constants are made once
    walk = files_entered(kd.compute, camera, keypoints)
    assert len(set(walk)) <= 9, walk


def test_kdfeature_makes_gray_and_samples_once(camera, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from kd_cv import KDFeature
    from kd_cv.descriptor.describer import Describer
    from kd_cv.nn import feature

    calls = Counter()

    def counted(owner, name):
        function = getattr(owner, name)

        def call(*arguments):
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, call)

    kd, image = KDFeature(100), torch.from_numpy(camera[None, None]).float() / 255
    lafs, _ = kd.detector(image)  # which looks at patches too, for their angles
    counted(feature, "as_gray_batch")
    counted(feature, "sample_scales")  # tensors
    counted(Describer, "at_squares")  # samples and describes
    counted(Describer, "of_patches")  # describes what was sampled
    rows = kd.describe(image, lafs)
    assert calls == {"as_gray_batch": 1, "at_squares": 1}
    calls.clear()
    followed = kd.describe(image.requires_grad_(), lafs)
    assert calls == {"as_gray_batch": 1, "sample_scales": 1, "of_patches": 1}
    torch.testing.assert_close(followed.detach(), rows, atol=1e-4, rtol=0)
