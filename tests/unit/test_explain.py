"""Heat maps sum to the similarity, patch maps are the kernels, both are of the descriptor."""

from functools import lru_cache

import cv2
import numpy as np
import pytest

from experiments.paper.drawings import kernel_map
from experiments.paper.patch_maps import patch_map, pixel_features
from kd_cv import KDDescriptor
from kd_cv.descriptor import reference
from kd_cv.descriptor.projection import Projection, project
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.explain import (
    Pixels,
    explain,
    explain_patches,
    heat_maps,
    part_names,
    pixel_responses,
    planes,
)
from kd_cv.gray import as_gray
from kd_cv.keypoints import to_keypoints
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening

data = pytest.importorskip("skimage.data")
PHOTO = data.camera()


def photo_patches(P: int, count: int = 2, seed: int = 0) -> np.ndarray:
    """Random windows of a photograph, the second close to the first: (count, P, P) uint8."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(100, 380 - P // 2, (count, 2))
    corners[1] = corners[0] + (2, 1)
    return np.stack([PHOTO[y : y + P, x : x + P] for x, y in corners])


def raw(patches: np.ndarray, spec: Spec) -> np.ndarray:
    c = spec.constants
    return reference.raw(patches / 255, c.smooth, c.diff, c.Phi, c.T, c.parts)


def gradients(patch: np.ndarray, spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Angle and weight of the pixels of a patch."""
    weight, cos, sin, _ = reference.gradients(
        patch / 255, spec.constants.smooth, spec.constants.diff
    )
    return np.arctan2(sin, cos), weight


def some_projection(D: int, d: int = 100, seed: int = 0) -> Projection:
    rng = np.random.default_rng(seed)
    mu = 0.05 * rng.normal(size=D).astype(np.float32)
    return Projection(mu, rng.normal(size=(D, min(d, D))).astype(np.float32))


# ------------------------------------------------------------------------------ pixels


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("P", [16, 33, 64])
def test_pixels_sum_to_the_descriptor(kernel, P):
    spec = Spec(P, kernel)
    patches = photo_patches(P)
    expected = raw(patches, spec)
    own = Pixels.of(patches[:, None], spec)
    np.testing.assert_allclose(own.V, expected, atol=1e-12)
    psi = pixel_features(spec, planes(*gradients(patches[0], spec)))
    assert psi.shape == (P * P, spec.dim)
    np.testing.assert_allclose((own.scale[0] * psi).sum(axis=0), expected[0], atol=1e-12)


def test_pixels_without_gradient_count_as_in_the_descriptor():
    spec = Spec(32)
    patch = photo_patches(32)[0]
    patch[:, 4:] = 100
    np.testing.assert_allclose(
        Pixels.of(patch[None, None], spec).V, raw(patch[None], spec), atol=1e-9
    )


def test_responses_are_products_with_the_features():
    spec = Spec(24)
    own = planes(*gradients(photo_patches(24)[0], spec))
    z = np.random.default_rng(0).normal(size=spec.dim)
    expected = (pixel_features(spec, own) @ z).reshape(24, 24)
    np.testing.assert_allclose(pixel_responses(spec, own, z), expected, atol=1e-12)
    rows = [3, 100]
    chosen = pixel_features(spec, own, rows)
    np.testing.assert_allclose(chosen @ z, expected.ravel()[rows], atol=1e-12)


# ------------------------------------------------------------------------------ heat maps


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("P", [32, 64])
def test_heat_maps_sum_to_the_cosine(kernel, P):
    spec = Spec(P, kernel)
    patches = photo_patches(P)
    projection = some_projection(spec.dim)
    why = explain_patches(*patches, spec, projection)
    V = raw(patches, spec)
    W = project(V, projection.mu.astype(float), projection.A.astype(float), 1.0)
    expected = {kernel: V[0] @ V[1], "whitened": W[0] @ W[1]}
    if kernel == "concat":
        for name in ("polar", "cart"):
            v0, v1 = raw(patches, Spec(P, name))
            expected[name] = v0 @ v1
    assert set(why.similarities) == set(expected)
    for name, cosine in expected.items():
        assert why.similarities[name] == pytest.approx(cosine, abs=1e-12)
        for heat in (why.heat0[name], why.heat1[name]):
            assert heat.shape == (P, P)
            assert heat.sum() == pytest.approx(cosine, abs=1e-12)
    assert why.name == "whitened"
    assert why.similarity == why.similarities["whitened"]


def test_raw_heat_map_is_the_sum_over_all_pairs_of_pixels():
    spec = Spec(16)
    patches = photo_patches(16)
    own = [planes(*gradients(patch, spec)) for patch in patches]
    psi0, psi1 = (pixel_features(spec, p) for p in own)
    pixels = [Pixels.of(patch[None, None], spec) for patch in patches]
    M = (pixels[0].scale[0] * psi0) @ (pixels[1].scale[0] * psi1).T  # every pair of pixels
    why = explain_patches(*patches, spec)
    np.testing.assert_allclose(why.heat0["concat"], M.sum(axis=1).reshape(16, 16), atol=1e-12)
    np.testing.assert_allclose(why.heat1["concat"], M.sum(axis=0).reshape(16, 16), atol=1e-12)


def test_pixels_without_gradient_are_neutral():
    spec = Spec(32)
    patch = np.full((32, 32), 90, np.uint8)
    patch[:, 20:] = 200  # one edge; the left half is flat
    why = explain_patches(patch, patch, spec, some_projection(spec.dim))
    for heat in why.heat0.values():
        # an empty pixel keeps the 1e-4 that core adds under its root
        assert np.abs(heat[:, :14]).max() < 1e-3 * np.abs(heat).max()
    assert why.similarity == pytest.approx(1.0)


def test_shares_of_the_parts_add_up():
    spec = Spec(32)
    patches = photo_patches(32)
    plain = explain_patches(*patches, spec)
    for part in ("polar", "cart"):
        assert plain.shares[part] == pytest.approx(plain.similarities[part] / 2)
    whitened = explain_patches(*patches, spec, some_projection(spec.dim))
    assert sum(whitened.shares.values()) == pytest.approx(whitened.similarity)
    swapped = explain_patches(*patches[::-1], spec, some_projection(spec.dim))
    assert swapped.shares == pytest.approx(whitened.shares)


# ------------------------------------------------------------------------------ of keypoints


@lru_cache(maxsize=3)
def fitted(kernel: str) -> Whitening:
    """A whitening of 600 photo patches and their neighbours one pixel to the right."""
    spec = Spec(32, kernel)
    rng = np.random.default_rng(0)
    corners = rng.integers(0, 470, (600, 2))
    corners = np.concatenate([corners, corners + (1, 0)])
    patches = np.stack([PHOTO[y : y + 32, x : x + 32] for x, y in corners])
    rows = np.arange(600)
    statistics = Statistics(spec.dim).update(
        raw(patches, spec), np.stack([rows, rows + 600], axis=1)
    )
    return Whitening.fit(statistics)


@pytest.mark.slow
@pytest.mark.parametrize("scales", [1, 3])
@pytest.mark.parametrize("whitening", [None, "ws", "wus", "wua", "w"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_explanation_is_of_the_descriptor_itself(kernel, whitening, scales):
    kd = KDDescriptor(
        kernel=kernel, whitening=whitening, weights=fitted(kernel), dim=40, scales=scales
    )
    turned = cv2.warpAffine(PHOTO, cv2.getRotationMatrix2D((255, 255), 15, 1.1), (512, 512))
    kp0, kp1 = to_keypoints(np.array([[200.0, 140.0, 5.0, 30.0], [190.0, 150.0, 5.5, 12.0]]))
    (row0,), (row1,) = kd.compute(PHOTO, [kp0])[1], kd.compute(turned, [kp1])[1]
    why = explain(PHOTO, kp0, turned, kp1, kd)
    assert why.similarity == pytest.approx(float(row0 @ row1), abs=2e-5)
    assert why.heat0[why.name].sum() == pytest.approx(why.similarity, abs=1e-10)
    assert why.heat1[why.name].sum() == pytest.approx(why.similarity, abs=1e-10)
    assert why.patch0.shape == why.patch1.shape == (32, 32)
    assert sum(why.shares.values()) == pytest.approx(why.similarity)


def test_frames_and_upright_are_understood():
    kd = KDDescriptor(upright=True, whitening=None)
    frame = (200.0, 140.0, 5.0, 70.0)
    keypoint = cv2.KeyPoint(*frame)
    by_keypoint = explain(PHOTO, keypoint, PHOTO, keypoint, kd)
    by_frame = explain(PHOTO, frame, PHOTO, np.array(frame), kd)
    np.testing.assert_array_equal(by_keypoint.patch0, by_frame.patch1)
    turned = explain(PHOTO, frame, PHOTO, frame, KDDescriptor())
    assert np.abs(turned.patch0 - by_frame.patch0).max() > 0.1
    # float images of 0..255 are only a gain away
    scaled = explain(PHOTO.astype(np.float32), frame, PHOTO, frame, kd)
    assert scaled.similarity == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("frame", [(-900, 50, 5, 0), (50, 50, 0, 0), (np.nan, 50, 5, 0)])
def test_a_keypoint_without_a_patch_has_no_similarity(frame):
    why = explain(PHOTO, frame, PHOTO, (200, 140, 5, 30), KDDescriptor())
    assert why.similarity == 0.0
    assert not why.heat1["concat"].any()


def test_what_cannot_be_explained_is_said():
    spec = Spec(32)
    a, b = photo_patches(32)
    root = Projection(np.zeros(238, np.float32), np.eye(238, dtype=np.float32), power=0.5)
    with pytest.raises(ValueError, match=r"power of 0\.5"):
        explain_patches(a, b, spec, root)
    with pytest.raises(ValueError, match=r"63 dimensions.*has 238"):
        explain_patches(a, b, spec, some_projection(63))
    with pytest.raises(ValueError, match=r"\(32, 32\), got \(31, 32\)"):
        explain_patches(a[1:], b, spec)
    with pytest.raises(TypeError, match="KDDescriptor, got SIFT"):
        explain(PHOTO, cv2.KeyPoint(50, 50, 5), PHOTO, cv2.KeyPoint(50, 50, 5), cv2.SIFT_create())
    with pytest.raises(ValueError, match=r"expected \['polar'"):
        explain_patches(a, b, spec).limit("pollar")


# ------------------------------------------------------------------------------ patch maps


@pytest.mark.parametrize(("kernel", "angle"), [("polar", "relative"), ("cart", "absolute")])
def test_patch_map_is_the_product_of_the_kernels(kernel, angle):
    """The feature maps of the descriptor against the closed form of its kernels."""
    pixel = (9, 21)
    own = patch_map(Spec(32, kernel), pixel, 0.3, 0.9)
    closed = kernel_map(32, pixel, 0.3, 0.9, position=kernel, angle=angle)
    peak = kernel_map(32, pixel, 0.0, 0.0, position=kernel, angle=angle)[21, 9]
    np.testing.assert_allclose(own, closed / peak, atol=1e-12)


def test_combined_map_is_the_mean_of_its_parts():
    pixel = (20, 40)
    polar, cart, both = (
        patch_map(Spec(64, kernel), pixel, 0.0, 0.5) for kernel in ("polar", "cart", "concat")
    )
    np.testing.assert_allclose(both, (polar + cart) / 2, atol=1e-12)


def test_raw_map_depends_on_the_difference_of_the_angles_only():
    spec, pixel = Spec(32), (10, 12)
    projection = some_projection(spec.dim)
    a, b = patch_map(spec, pixel, 0.0, 0.4), patch_map(spec, pixel, 1.0, 1.4)
    np.testing.assert_allclose(a, b, atol=1e-12)
    assert a[12, 10] < 1
    assert patch_map(spec, pixel)[12, 10] == pytest.approx(1.0)
    whitened = [patch_map(spec, pixel, t, t, projection) for t in (0.0, 1.0)]
    assert np.abs(whitened[0] - whitened[1]).max() > 0.1 * np.abs(whitened[0]).max()


def test_whitened_map_is_the_formula_of_the_paper():
    spec, (x, y) = Spec(16), (5, 11)
    projection = some_projection(spec.dim)
    mu, A = projection.mu.astype(float), projection.A.astype(float)
    g = np.exp(-np.add.outer(*[np.linspace(-1, 1, 16) ** 2] * 2) / 2)
    psi = pixel_features(spec, planes(np.full((16, 16), 0.7), 1 / g))
    psi_p, psi_q = psi[y * 16 + x], psi
    parts = [slice(0, 175), slice(175, 238)]
    unit = np.concatenate(
        [psi_q[:, p] / np.linalg.norm(psi_p[p]) / np.sqrt(2) for p in parts], axis=1
    )
    expected = (unit - mu) @ A @ A.T @ (unit[y * 16 + x] - mu)
    found = patch_map(spec, (x, y), 0.7, 0.7, projection)
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"scales": 3}, {"kernel": "polar", "whitening": None}])
def test_heat_maps_of_many_matches_are_those_of_each(settings):
    image = data.camera()[::2, ::2].copy()
    kd = KDDescriptor(**settings)
    frames = np.array([[60.0 + 9 * i, 80.0 + 5 * i, 4.0 + 0.2 * i, 17.0 * i] for i in range(9)])
    flat = np.zeros_like(image)
    maps = heat_maps(
        kd.extractor.patches(as_gray(image), frames),
        np.concatenate(
            [
                kd.extractor.patches(as_gray(image), frames[::-1][:8]),
                kd.extractor.patches(as_gray(flat), frames[:1]),
            ]
        ),
        kd.settings,
    )
    for i in range(8):
        why = explain(image, frames[i], image, frames[::-1][i], kd)
        np.testing.assert_allclose(maps.heat0[i], why.heat0[why.name], atol=1e-12)
        np.testing.assert_allclose(maps.heat1[i], why.heat1[why.name], atol=1e-12)
        assert maps.similarity[i] == pytest.approx(why.similarity, abs=1e-12)
        assert list(why.shares) == list(part_names(kd.settings.spec))
        assert maps.shares[i].tolist() == pytest.approx(list(why.shares.values()), abs=1e-12)
    assert not maps.heat0[8].any() and maps.similarity[8] == 0
