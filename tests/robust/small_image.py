"""A small textured image, which the tests of hostile calls share."""

import cv2
import numpy as np

RNG = np.random.default_rng(0)
IMAGE = cv2.GaussianBlur(RNG.integers(0, 256, (60, 80)).astype(np.uint8), (0, 0), 1.0)
