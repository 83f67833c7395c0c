"""`DoGDetector`: the keypoints of `DoG` as LAFs, by the compiled detector and by torch alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kd_cv import DoG, KDDescriptor, KDFeature  # noqa: E402
from kd_cv.detector.scale_space import ScaleSpace  # noqa: E402
from kd_cv.nn import detector  # noqa: E402
from kd_cv.nn.detector import DoGDetector, in_torch  # noqa: E402
from kd_cv.nn.lafs import frames_from_lafs  # noqa: E402


@pytest.fixture(scope="module")
def grays(photographs):
    return [np.float32(photographs[name][:300, :400]) / 255 for name in ("camera", "coffee")]


@pytest.fixture(scope="module")
def images(grays):
    return torch.tensor(np.stack(grays))[:, None]


def agree(first, second):
    """Share of frames that the others have too: 0.01 px, 1 %, 1 degree."""
    near = np.abs(first[:, None, :2] - second[:, :2]).max(2) < 0.01
    near &= np.abs(np.log(first[:, None, 2] / second[:, 2])) < 0.01
    turn = np.abs((first[:, None, 3] - second[:, 3] + 180) % 360 - 180)
    return (near & (turn < 1)).any(1).mean()


def frames_of(lafs):
    frames = frames_from_lafs(lafs, detector.DETECTED_MAGNIFICATION)
    return frames[frames[:, 2] > 0]


@pytest.mark.slow
@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("by_torch", [False, True])
def test_keypoints_are_those_of_the_cpu(images, grays, monkeypatch, by_torch, upright):
    if by_torch:
        monkeypatch.setattr(detector, "_compiled", in_torch)
    lafs, responses = DoGDetector(300, upright)(images)
    assert lafs.shape == (2, 300, 2, 3) and responses.shape == (2, 300)
    kd = KDDescriptor(300, upright=upright)
    for b, gray in enumerate(grays):
        expected = np.array([[*k.pt, k.size, max(k.angle, 0)] for k in kd.detect(gray)])
        found = frames_of(lafs[b])
        assert len(found) == len(expected) == 300
        assert agree(found, expected) > 0.995 and agree(expected, found) > 0.995
        strengths = np.array([k.response for k in kd.detect(gray)])
        np.testing.assert_allclose(responses[b], strengths, rtol=0.03)


@pytest.mark.slow
def test_a_batch_is_its_images_and_settings_count(images):
    space = ScaleSpace(contrast=0.03, edge=6.0)
    frames, responses = in_torch(images[:, 0], None, space, 200, False)
    for b in range(2):
        alone = in_torch(images[b : b + 1, 0], None, space, 200, False)
        torch.testing.assert_close(frames[b], alone[0][0], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(responses[b], alone[1][0], rtol=1e-3, atol=1e-5)
    few = DoGDetector(2000, contrastThreshold=0.1)(images)[1]
    assert 0 < (few > 0).sum() < (DoGDetector(2000)(images)[1] > 0).sum()
    assert "contrastThreshold=0.1" in repr(DoGDetector(2000, contrastThreshold=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("by_torch", [False, True])
def test_masks_flat_and_small_images(images, grays, monkeypatch, by_torch):
    if by_torch:
        monkeypatch.setattr(detector, "_compiled", in_torch)
    mask = torch.zeros_like(images)
    mask[0, :, :, 200:] = 1
    lafs, responses = DoGDetector(100)(images, mask)
    assert (frames_of(lafs[0])[:, 0] > 199.4).all() and (responses[0] > 0).all()
    expected = DoG(100).detect_frames(grays[0], np.uint8(mask[0, 0])).frames
    assert agree(frames_of(lafs[0]), expected) > 0.98
    assert not lafs[1].any() and not responses[1].any()
    for shape in ((40, 50), (10, 300)):
        lafs, responses = DoGDetector(7)(torch.full((2, 1, *shape), 0.5))
        assert lafs.shape == (2, 7, 2, 3) and not lafs.any() and not responses.any()


def test_types_follow_the_images(images):
    for dtype in (torch.float16, torch.float64):
        lafs, responses = DoGDetector(20)(images.to(dtype))
        assert lafs.dtype == responses.dtype == dtype


def test_wrong_arguments(images):
    with pytest.raises(ValueError, match="num_features must be at least 1"):
        DoGDetector(0)
    with pytest.raises(ValueError, match=r"\(B, 1, H, W\)"):
        DoGDetector()(images[:, 0])
    with pytest.raises(ValueError, match="shape of its images"):
        DoGDetector()(images, images[:1])
    with pytest.raises(ValueError, match="NaN"):
        DoGDetector()(images * torch.nan)


def test_it_is_the_default_of_kdfeature(images, grays):
    _, _, descriptors = KDFeature(200)(images)
    for b, gray in enumerate(grays):
        _, rows = KDDescriptor(200).detectAndCompute(gray, None)
        similar = (descriptors[b].numpy() * rows).sum(1)
        assert np.median(similar) > 0.999
