"""Photographs and sequences to build scenes of."""

import pytest
from skimage import data


@pytest.fixture(scope="module")
def photo():
    return data.camera()
