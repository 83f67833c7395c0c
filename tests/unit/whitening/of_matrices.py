"""Formulas and data that the tests of whitening share."""

import numpy as np

from kd_cv.whitening.variants import eig, shrinkage

D = 24


def descriptors(n=3000, dim=D, seed=0):
    """Unit descriptors of points seen twice with noise, and the pairs of their rows."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(dim, dim)) * np.geomspace(1, 0.03, dim)[:, None]
    noise = rng.normal(size=(dim, dim)) * np.geomspace(0.2, 0.01, dim)
    points = rng.normal(size=(n // 2, dim)) @ mixing + rng.normal(size=dim)
    X = np.concatenate([points, points]) + rng.normal(size=(2 * len(points), dim)) @ noise
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    k = np.arange(len(points))
    return X, np.stack([k, k + len(points)], axis=1)


def cov(Y):
    return np.cov(Y, rowvar=False, bias=True)


def attenuated(C, t=0.7, dim=None):
    """W_UA by the formula of the paper; W for t = 1, a rotation for t = 0."""
    U, lam = eig(C)
    return (U * lam ** (-t / 2))[:, :dim]


def shrunk(C, beta_index, dim=None):
    """W_US by the formula of the paper."""
    U, lam = eig(C)
    return (U * shrinkage(lam / lam[0], beta_index))[:, :dim]


def matrices(projection):
    return projection.mu, projection.A


def rows_of(X, pairs):
    """The descriptors of some pairs, and the pairs of their rows."""
    k = np.arange(len(pairs))
    return X[pairs.T.ravel()], np.stack([k, k + len(pairs)], axis=1)
