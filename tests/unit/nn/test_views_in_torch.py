"""`KDFeature(views=)`: by the extractor and by torch operations alone."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kd_cv import KDDescriptor, KDFeature, KDModule  # noqa: E402
from kd_cv.nn import detector  # noqa: E402
from kd_cv.nn.sampling import area  # noqa: E402
from kd_cv.nn.views import Views, repeated  # noqa: E402
from kd_cv.views import view_of  # noqa: E402


@pytest.fixture(scope="module")
def image(photographs):
    gray = np.float32(photographs["coffee"][:200, :260]) / 255
    return torch.from_numpy(gray)[None, None]


@pytest.fixture
def by_torch(monkeypatch):
    """As on other devices than the CPU."""

    def call(feature, *arguments):
        with monkeypatch.context() as patched:
            patched.setattr(KDModule, "compilable", lambda *_: False)
            patched.setattr(detector, "on_host", lambda *_: False)
            return feature(*arguments)

    return call


@pytest.mark.slow
@pytest.mark.parametrize("views", [1, 2, 3, 5, 9])
def test_views_and_their_masks_are_those_of_the_cpu(image, views):
    mask = torch.zeros(image.shape[2:], dtype=torch.bool)
    mask[30:170, 50:] = True
    of = Views(11)
    for where in (None, mask):
        given = None if where is None else where.byte().numpy()
        expected = view_of(image[0, 0].numpy(), views, given)
        found = of.image(image[0], views)[0]
        np.testing.assert_allclose(found, expected.image, atol=2e-4)
        seen = of.mask(image[0], None if where is None else where[None], views)
        assert (seen is None) == (expected.mask is None)
        if seen is not None:
            assert (seen[0].numpy() == (expected.mask != 0)).mean() > 0.999


@pytest.mark.slow
@pytest.mark.parametrize(("views", "upright"), [(3, False), (5, True)])
def test_keypoints_of_views_are_those_of_the_cpu(image, by_torch, views, upright):
    mask = torch.ones_like(image)
    mask[..., :60] = 0
    feature = KDFeature(300, views=views, upright=upright)
    with torch.no_grad():
        expected, found = feature(image, mask), by_torch(feature, image, mask)
    for first, second in ((expected, found), (found, expected)):
        filled = first[1][0] > 0
        away = (first[0][0, filled, None] - second[0][0]).abs()
        similar = first[2][0][filled] @ second[2][0].T > 0.999
        shapes = away[..., :2].amax((2, 3)) < 0.02 * first[0][0, filled, None, 0, :2].norm(dim=2)
        same = (away[..., 2].amax(2) < 0.01) & shapes & similar
        assert filled.sum() > 200 and same.any(1).float().mean() >= 0.99
    keypoints = KDDescriptor(300, views=views, upright=upright).detect(
        image[0, 0].numpy(), mask[0, 0].byte().numpy()
    )
    lafs = expected[0][0][expected[1][0] > 0]
    positions = [k.pt for k in keypoints]
    np.testing.assert_allclose(lafs[:, :, 2], positions, atol=1e-3)
    sizes = [k.size for k in keypoints]
    scale = feature.magnification / 2
    np.testing.assert_allclose(area(lafs[None])[0].sqrt() / scale, sizes, rtol=1e-4)
    stretched = lafs[:, :, 0].norm(dim=1) / lafs[:, :, 1].norm(dim=1)
    assert ((stretched - 1).abs() < 1e-3).any() and (stretched > 1.5).any()


def test_a_keypoint_that_a_stronger_one_of_another_view_repeats():
    places = [[10.0, 10.0], [11.0, 10.0], [11.0, 10.0], [30.0, 10.0], [31.0, 10.0]]
    lafs = torch.cat([torch.eye(2).expand(5, 2, 2), torch.tensor(places)[:, :, None]], 2)
    chosen = torch.tensor([[True, True, True, False, True]])
    views = torch.tensor([[0, 0, 1, 0, 1]])
    assert repeated(lafs[None], views, chosen).tolist() == [[False, False, True, False, False]]


@pytest.mark.slow
def test_views_have_a_gradient_and_export(image):
    feature = KDFeature(40, views=3)
    seen = image.clone().requires_grad_()
    feature(seen)[2].pow(3).sum().backward()
    assert seen.grad.isfinite().all() and seen.grad.any()
    with torch.no_grad():
        program = torch.export.export(feature, (image,))
        found, expected = program.module()(image), feature(image)
    away = (found[0][0, :, None, :, 2] - expected[0][0, :, :, 2]).abs().amax(-1).amin(1)
    assert (away < 0.01).float().mean() >= 0.95


def test_wrong_views():
    with pytest.raises(ValueError, match=r"views must be one of \[1, 3, 5, 11\], got 2"):
        KDFeature(views=2)
    with pytest.raises(ValueError, match="views=3 is for DoGDetector"):
        KDFeature(detector=torch.nn.Identity(), views=3)
