"""The shipped matrices: all there, and as good as the registry says."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments.protocols.candidates import make_candidates
from experiments.protocols.patch_sets import read_phototourism
from experiments.protocols.verification import pairs_of_set, patch_verification
from kd_cv import KDDescriptor, describe
from kd_cv.descriptor.spec import KERNELS
from kd_cv.whitening import registry as weights

LIBERTY = Path(__file__).parents[3] / "shared" / "data" / "liberty"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multiview", "hpatches", "liberty"])
@pytest.mark.parametrize("P", [32, 64])
def test_every_combination_gives_unit_rows(camera, name, P):
    patches = np.stack([camera[y : y + P, y : y + P] for y in range(0, 400, 40)])
    for kernel, whitening in product(KERNELS, ("ws", "wus", "wua", "w", "pcasqrt")):
        rows = describe(patches, kernel=kernel, whitening=whitening, weights=name)
        assert rows.shape == (10, 63 if kernel == "cart" else 128)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_the_registry_says_what_each_was_fitted_on():
    assert list(weights.registry()) == ["multiview", "hpatches", "liberty"]
    for name, entry in weights.registry().items():
        assert entry.patches > 1000 and entry.pairs > 400 and entry.command.endswith(name)
    for name in ("hpatches", "liberty"):
        assert weights.registry()[name].fitted_on.startswith("a part of")


def test_images_and_patches_have_a_trained_whitening_of_their_own():
    for P in (32, 64):
        settings = KDDescriptor(patch_size=P).settings
        assert (settings.variant, settings.variant_of_patches) == ("wm", "wm")
    for_images, for_patches = (
        weights.resolve("multiview", "concat", 64, use=use) for use in ("images", "patches")
    )
    assert not np.array_equal(for_images.A_m, for_patches.A_m)
    assert for_patches.provenance["trained_on"]["share"] == 0.3
    three = KDDescriptor(scales=3)
    assert three.settings.variant == "wm"
    assert not np.array_equal(three.projection.A, KDDescriptor().projection.A)
    assert KDDescriptor(kernel="polar").settings.variant == "ws"
    assert weights.registry()["multiview"].uses["patches"] == "cart 64, concat 64, polar 64"


def test_matrices_for_hpatches_are_better_than_rootsift_on_sequences_left_out():
    figures = weights.registry()["hpatches"].figures
    for task in ("verification", "matching", "retrieval"):
        assert figures[f"left_out_{task}_ws"] > figures[f"left_out_{task}_rootsift"] + 3
    for P in (32, 64):
        for_patches = weights.resolve("hpatches", "concat", P, use="patches")
        assert for_patches.provenance["magnification"] == 5.0 and for_patches.A_m is None


@pytest.mark.slow
@pytest.mark.skipif(not LIBERTY.is_dir(), reason="the Liberty patches are not at hand")
def test_multiview_reproduces_its_recorded_figures():
    variants = ("wua", "wus", "ws", "wm")
    candidates = make_candidates(["kd"], whitening=variants, patch_size=64)
    scores = patch_verification(pairs_of_set(read_phototourism(LIBERTY)), candidates)
    recorded = weights.registry()["multiview"].figures
    for variant, score in zip(variants, scores, strict=True):
        fpr95 = score.values["fpr95"]
        assert fpr95 == pytest.approx(recorded[f"liberty_fpr95_{variant}"], abs=0.1)
        assert fpr95 <= {"wua": 7.1, "wus": 8.5, "ws": 6.0, "wm": 6.0}[variant]
    assert scores[3].values["fpr95"] <= scores[2].values["fpr95"]
