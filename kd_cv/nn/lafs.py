"""Convert between Kornia's local affine frames (LAFs) and frames or OpenCV keypoints.

A LAF is [A | c], 2 x 3, in pixels; the patch is c + A [-1, 1]^2. Differences from keypoints:

- scale: the side of the patch is 2 sqrt |det A| = magnification * size;
- angle: Kornia's turns counter-clockwise on the screen, OpenCV's clockwise;
- shape: a keypoint is a circle and cannot hold an affine shape.

Both have the centre of the top-left pixel at (0, 0).
"""

from collections.abc import Sequence

import cv2
import numpy as np
import torch
from torch import Tensor

from kd_cv.descriptor.frames import MAGNIFICATION, UPRIGHT, Frames, as_magnification, degrees
from kd_cv.keypoints import from_keypoints


def round_lafs(frames: Tensor, magnification: float) -> Tensor:
    """Convert frames (N, 4) to LAFs (1, N, 2, 3) in torch; frames without a size get scale 0."""
    x, y, size, angle = frames.unbind(1)
    turn = torch.deg2rad(angle.masked_fill(angle == UPRIGHT, 0.0))
    scale = 0.5 * magnification * size.clamp(min=0)
    a, b = scale * turn.cos(), scale * turn.sin()
    return torch.stack([a, -b, x, b, a, y], dim=1).reshape(1, -1, 2, 3)


def scaled(lafs: Tensor, factor: float) -> Tensor:
    return torch.cat([lafs[..., :2] * factor, lafs[..., 2:]], dim=-1)


def is_round(lafs: Tensor) -> bool:
    """Whether all LAFs (B, N, 2, 3) are a scale and a rotation, which frames can hold."""
    (a, b), (c, d) = (row.unbind(-1) for row in lafs[..., :2].unbind(-2))
    near = 1e-6 * (a.abs() + b.abs())
    return bool(((a - d).abs() <= near).all() and ((b + c).abs() <= near).all())


def frames_from_lafs(lafs: Tensor, magnification: float | str = MAGNIFICATION) -> Frames:
    """Convert round LAFs (N, 2, 3) or (1, N, 2, 3) to frames (N, 4) of the same patches."""
    if lafs.dim() == 4 and lafs.shape[0] == 1:
        lafs = lafs[0]
    if lafs.dim() != 3 or lafs.shape[1:] != (2, 3):
        raise ValueError(f"LAFs must be (N, 2, 3) or (1, N, 2, 3), got {list(lafs.shape)}")
    (a, b, x), (c, d, y) = lafs.detach().cpu().double().permute(1, 2, 0).numpy()
    size = 2.0 * np.sqrt(np.abs(a * d - b * c)) / as_magnification(magnification)
    angle = degrees(np.arctan2(-b, a)) % 360.0
    return np.stack([x, y, size, angle], axis=1)


def lafs_from_keypoints(
    keypoints: Sequence[cv2.KeyPoint], magnification: float | str = MAGNIFICATION
) -> Tensor:
    """Convert OpenCV keypoints to float32 LAFs (1, N, 2, 3) of the same patches."""
    frames = torch.from_numpy(from_keypoints(keypoints))
    return round_lafs(frames, as_magnification(magnification)).float()
