"""Kernels, feature maps, grids and filters: stored numbers, and a second way to each formula."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import correlate1d
from scipy.special import ive

from kd_cv.descriptor.kernels import (
    PHI,
    RHO,
    THETA,
    Grid,
    VonMises,
    X,
    Y,
    correlation_matrix,
    gaussian_taps,
)

angles = st.floats(-10.0, 10.0)
sizes = st.integers(16, 128)


@pytest.mark.parametrize(
    "kernel, gamma",
    [
        (THETA, [0.14343169, 0.26828502, 0.21979234, 0.15838885]),
        (RHO, [0.14343169, 0.26828502, 0.21979234]),
        (PHI, [0.14343169, 0.26828502, 0.21979234]),
        (X, [0.38214156, 0.48090413]),
        (Y, [0.38214156, 0.48090413]),
    ],
)
def test_golden_coefficients(kernel, gamma):
    np.testing.assert_allclose(kernel.gamma, gamma, rtol=0, atol=5e-9)


@given(kappa=st.floats(0.1, 300.0), N=st.integers(0, 6))
def test_coefficients_are_the_bessel_functions_of_the_paper(kappa, N):
    # (I_0(kappa) - exp(-kappa)) / (2 sinh kappa) and 2 I_i(kappa) / (2 sinh kappa), both sides
    # times exp(-kappa).
    bessel = ive(np.arange(N + 1), kappa) * np.where(np.arange(N + 1) == 0, 1.0, 2.0)
    bessel[0] -= np.exp(-2 * kappa)
    expected = bessel / -np.expm1(-2 * kappa)
    np.testing.assert_allclose(VonMises(kappa, N).gamma, expected, rtol=0, atol=1e-14)


def test_coefficients_of_a_very_narrow_kernel_stay_finite():
    gamma = VonMises(kappa=2000.0, N=3).gamma
    assert np.isfinite(gamma).all() and (gamma > 0).all()
    # exp(kappa cos d - kappa) is then a Gaussian of variance 1 / kappa: gamma_1 = sqrt(2/pi kappa).
    assert gamma[1] == pytest.approx(np.sqrt(2 / (np.pi * 2000)), rel=1e-3)


@pytest.mark.parametrize("kernel", [THETA, RHO, X])
@given(a=angles, b=angles)
def test_dot_product_of_feature_maps_is_the_truncated_kernel(kernel, a, b):
    truncated = sum(g * np.cos(i * (a - b)) for i, g in enumerate(kernel.gamma))
    assert kernel.psi(np.float64(a)) @ kernel.psi(np.float64(b)) == pytest.approx(
        truncated, abs=1e-13
    )
    assert kernel(np.float64(a - b)) == pytest.approx(truncated, abs=1e-13)


def test_feature_map_has_the_order_of_the_paper():
    g = THETA.gamma
    a = 0.7
    expected = [np.sqrt(g[0])]
    expected += [np.sqrt(g[i]) * np.cos(i * a) for i in (1, 2, 3)]
    expected += [np.sqrt(g[i]) * np.sin(i * a) for i in (1, 2, 3)]
    np.testing.assert_allclose(THETA.psi(np.float64(a)), expected, atol=1e-15)
    assert THETA.psi(np.zeros((2, 5))).shape == (2, 5, THETA.dim) == (2, 5, 7)


def test_exact_kernel_is_one_at_zero_and_zero_at_pi():
    for kernel in (THETA, X):
        np.testing.assert_allclose(kernel.exact(np.array([0.0, np.pi])), [1, 0], atol=1e-15)


def test_truncation_converges_to_the_exact_kernel():
    delta = np.linspace(0, np.pi, 50)
    errors = [np.abs(VonMises(8.0, N)(delta) - THETA.exact(delta)).max() for N in (1, 3, 6, 12, 24)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-9


@given(P=sizes)
def test_grid_is_from_minus_one_to_one_and_antisymmetric_to_the_last_bit(P):
    grid = Grid.of_size(P)
    assert grid.x.shape == grid.y.shape == grid.rho.shape == grid.phi.shape == (P, P)
    assert (grid.x[:, 0] == -1).all() and (grid.x[:, -1] == 1).all()
    assert (grid.y[0] == -1).all() and (grid.y[-1] == 1).all()
    assert np.array_equal(grid.x, -grid.x[:, ::-1]) and np.array_equal(grid.y, -grid.y[::-1])
    np.testing.assert_allclose(np.diff(grid.x, axis=1), 2 / (P - 1), atol=1e-14)
    np.testing.assert_allclose(grid.rho * np.cos(grid.phi), grid.x, atol=1e-14)
    np.testing.assert_allclose(grid.rho * np.sin(grid.phi), grid.y, atol=1e-14)


def test_mask_and_ranges_of_the_kernels_arguments():
    grid = Grid.of_size(33)
    r = np.hypot(grid.x, grid.y) / np.sqrt(2)  # the paper's rho, from 0 to 1
    np.testing.assert_allclose(grid.g, np.exp(-(r**2)), atol=1e-15)
    assert grid.g[16, 16] == 1.0 and grid.g[0, 0] == pytest.approx(np.exp(-1))
    assert grid.rho_angle.min() == 0.0 and grid.rho_angle.max() == pytest.approx(np.pi)
    for angle in (grid.x_angle, grid.y_angle):
        assert np.ptp(angle) == pytest.approx(np.pi)


@given(P=sizes)
def test_taps_are_opencvs_gaussian(P):
    sigma = 1.4 * P / 64
    taps = gaussian_taps(sigma)
    np.testing.assert_allclose(taps, cv2.getGaussianKernel(5, sigma).ravel(), atol=1e-7)
    assert taps.sum() == pytest.approx(1.0, abs=1e-15)


@given(P=sizes, seed=st.integers(0, 99))
def test_correlation_matrix_is_scipys_correlation_with_replicated_ends(P, seed):
    rng = np.random.default_rng(seed)
    signal, taps = rng.normal(size=(P, 3)), rng.normal(size=5)
    expected = correlate1d(signal, taps, axis=0, mode="nearest")
    np.testing.assert_allclose(correlation_matrix(taps, P) @ signal, expected, atol=1e-13)
