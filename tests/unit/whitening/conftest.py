"""Descriptors to fit on, and what was fitted."""

import pytest
from of_matrices import D, descriptors

from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening


@pytest.fixture(scope="module")
def data():
    return descriptors()


@pytest.fixture(scope="module")
def model(data):
    X, pairs = data
    return Whitening.fit(Statistics(D).update(X, pairs), provenance={"fitted_on": "synthetic"})
