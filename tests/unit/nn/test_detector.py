"""`DoGDetector`: the keypoints of `DoG` as LAFs, by the compiled detector and by torch alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kd_cv import DoG, KDDescriptor, KDFeature  # noqa: E402
from kd_cv.detector import detect, reference  # noqa: E402
from kd_cv.nn import detector  # noqa: E402
from kd_cv.nn.detector import DoGDetector, checked  # noqa: E402
from kd_cv.nn.lafs import frames_from_lafs  # noqa: E402
from kd_cv.nn.scale_space import gain_of, peaks  # noqa: E402


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
        monkeypatch.setattr(DoGDetector, "_compiled", DoGDetector.in_torch)
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
    of = DoGDetector(200, contrastThreshold=0.03, edgeThreshold=6.0)
    frames, responses = of.in_torch(images[:, 0])
    for b in range(2):
        alone = of.in_torch(images[b : b + 1, 0])
        torch.testing.assert_close(frames[b, :, :2], alone[0][0, :, :2], rtol=0, atol=1e-4)
        torch.testing.assert_close(responses[b], alone[1][0], rtol=1e-4, atol=1e-6)
    few = DoGDetector(2000, contrastThreshold=0.1)(images)[1]
    assert 0 < (few > 0).sum() < (DoGDetector(2000)(images)[1] > 0).sum()
    assert "contrastThreshold=0.1" in repr(DoGDetector(2000, contrastThreshold=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("by_torch", [False, True])
def test_masks_flat_and_small_images(images, grays, monkeypatch, by_torch):
    if by_torch:
        monkeypatch.setattr(DoGDetector, "_compiled", DoGDetector.in_torch)
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


def test_positions_are_float32_at_least(images):
    for dtype, kind in ((torch.float16, torch.float32), (torch.float64, torch.float64)):
        lafs, responses = DoGDetector(20)(images.to(dtype))
        assert lafs.dtype == responses.dtype == kind


def test_extreme_pixels_are_those_of_the_reference_with_equal_neighbours_too():
    generator = torch.Generator().manual_seed(0)
    D = torch.randint(-4, 5, (2, 5, 40, 30), generator=generator).float()
    expected = reference.candidates(D, 0.5)
    found = peaks(torch.stack([D, -D]), 0.5).amax(0)[..., 2:-2, 2:-2]
    assert expected.sum() > 50 and torch.equal(found > 0, expected)


def test_the_gain_ignores_borders_and_masks_but_not_flat_shapes(grays):
    shape = np.zeros((90, 120), np.float32)
    shape[40:70, 50:91] = 0.3
    found = gain_of(torch.from_numpy(shape)[None], None)
    assert found.item() == pytest.approx(detect.gain_of(shape), rel=1e-4)
    padded = np.pad(grays[0], ((0, 30), (20, 0)), constant_values=0.7)
    mask = np.zeros(padded.shape, np.uint8)
    mask[10:200, 50:300] = 1
    for where in (None, mask):
        ours = gain_of(
            torch.from_numpy(padded)[None],
            None if where is None else torch.from_numpy(where != 0)[None],
        )
        assert ours.item() == pytest.approx(detect.gain_of(padded, where), rel=1e-4)


@pytest.mark.slow
def test_faint_images_have_the_same_keypoints(images):
    for find in (DoGDetector(100), DoGDetector(100).in_torch):
        first, second = (
            find(x if find.__class__ is DoGDetector else checked(x, None)[0])
            for x in (images, images * 2.0**-30)
        )
        torch.testing.assert_close(first[0], second[0])


def test_without_a_look_at_the_values_nan_hides_its_image_alone(images, monkeypatch):
    monkeypatch.setattr(detector, "on_host", lambda *_: False)
    expected = DoGDetector(50)(images)
    spoiled = images.clone()
    spoiled[0, 0, 7, 7] = torch.nan
    lafs, responses = DoGDetector(50)(spoiled)
    assert not lafs[0].any() and not responses[0].any()
    torch.testing.assert_close(lafs[1], expected[0][1], atol=1e-3, rtol=0)


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
