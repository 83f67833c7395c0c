"""Matrices for images, for several patch sizes and for ready-made patches, each in its place."""

import cv2
import numpy as np
import pytest

from experiments.protocols.candidates import kd_candidate
from kd_cv import KDDescriptor, describe
from kd_cv.settings import Settings
from kd_cv.whitening import Statistics, Whitening

USES = ("images", "scales", "patches")


@pytest.fixture(scope="module")
def entries(camera):
    """Three fits that differ, at one patch size."""
    keypoints = cv2.SIFT_create(600).detect(camera, None)
    raw = KDDescriptor(whitening=None).compute(camera, keypoints)[1]
    pairs = np.random.default_rng(0).permutation(len(raw))[: len(raw) // 2 * 2].reshape(-1, 2)
    return {
        ("concat", 32, use): Whitening.fit(Statistics(238).update(raw[k * 20 :][:500]))
        for k, use in enumerate(USES)
    } | {("concat", 16): Whitening.fit(Statistics(238).update(raw, pairs))}


def rows_by_hand(entries, use, patches, scales=1):
    raw = describe(patches, whitening=None).reshape(-1, scales, 238).sum(axis=1)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    return entries["concat", 32, use].apply(raw, "best", 128)


@pytest.mark.slow
@pytest.mark.parametrize("scales", [1, 3])
def test_compute_takes_those_for_images_and_describe_those_for_patches(camera, entries, scales):
    kd = KDDescriptor(weights=entries, scales=scales, magnification=15)
    keypoints = cv2.SIFT_create(20).detect(camera, None)
    patches = kd.extractor.patches(camera, kd.frames(keypoints)).reshape(-1, 32, 32)
    _, rows = kd.compute(camera, keypoints)
    use = "images" if scales == 1 else "scales"
    np.testing.assert_allclose(rows, rows_by_hand(entries, use, patches, scales), atol=2e-4)
    ready = describe(patches, weights=entries)
    np.testing.assert_allclose(ready, rows_by_hand(entries, "patches", patches), atol=2e-4)


def test_a_module_has_the_matrices_of_its_descriptor(camera, entries):
    torch = pytest.importorskip("torch")
    from kd_cv import KDFeature, KDModule

    patches = np.stack([camera[y : y + 32, y : y + 32] for y in range(100, 400, 50)])
    tensor = torch.from_numpy(patches / np.float32(255))[:, None]
    for module, use in (
        (KDDescriptor(weights=entries).module(), "images"),
        (KDModule(weights=entries), "patches"),
        (KDModule(weights=entries, use="scales"), "scales"),
    ):
        expected = rows_by_hand(entries, use, patches)
        np.testing.assert_allclose(module(tensor).numpy(), expected, atol=2e-4)
    assert KDFeature().descriptor.matrices[1].equal(KDDescriptor().module().matrices[1])


def test_a_fingerprint_knows_both(entries):
    other = {**entries, ("concat", 32, "patches"): entries["concat", 32, "images"]}
    assert Settings(weights=entries).fingerprint != Settings(weights=other).fingerprint


def test_the_variant_of_the_default_is_the_best_of_the_weights(entries):
    assert KDDescriptor(weights=entries).settings.variant == "wua"  # fitted without pairs
    small = KDDescriptor(weights=entries, patch_size=16)
    assert small.settings.variant == "ws" and small.settings.whitening == "best"
    assert KDDescriptor(whitening=None).settings.variant is None


def test_weights_may_have_a_whitening_for_images_only(camera, entries):
    mixed = {
        ("concat", 32): entries["concat", 16],
        ("concat", 32, "patches"): entries["concat", 32, "patches"],
    }
    settings = Settings(whitening="ws", weights=mixed)
    assert settings.variant == "ws" and settings.variant_of_patches is None
    assert len(settings.fingerprint) == 32
    patches = camera[None, :32, :32]
    with pytest.raises(ValueError, match='"ws" is missing'):
        describe(patches, whitening="ws", weights=mixed)
    best = Settings(weights=mixed)
    assert (best.variant, best.variant_of_patches) == ("ws", "wua")
    assert kd_candidate(Settings(weights=mixed)).name == "KD best (given)"
