"""Stitch photographs of a turning camera with OpenCV's own pipeline, by KD's features."""

import argparse

import cv2
import numpy as np

try:
    from skimage import data
except ImportError:
    raise SystemExit("the photograph of this demo: pip install scikit-image") from None

from kd_cv import KDDescriptor
from kd_cv.io.files import utf8
from kd_cv.stitching import image_features

FOCAL, SIZE = 500.0, (420, 420)  # of the views, in pixels


def view(photo: np.ndarray, degrees: float, rng: np.random.Generator) -> np.ndarray:
    """What a camera sees that is turned to the right: x ~ K R^T K^-1 X, darker and noisy."""
    height, width = photo.shape[:2]
    K0 = np.array([[FOCAL, 0, width / 2], [0, FOCAL, height / 2], [0, 0, 1]])
    K1 = np.array([[FOCAL, 0, SIZE[0] / 2], [0, FOCAL, SIZE[1] / 2], [0, 0, 1]])
    R = cv2.Rodrigues(np.deg2rad([0.0, degrees, 0.0]))[0]
    seen = cv2.warpPerspective(photo, K1 @ R.T @ np.linalg.inv(K0), SIZE)
    return np.clip(0.9 * seen + rng.normal(0, 8, seen.shape), 0, 255).astype(np.uint8)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=utf8, default="stitched.png")
args = parser.parse_args()
photo = cv2.resize(np.ascontiguousarray(data.coffee()[:, :, ::-1]), (900, 600))
rng = np.random.default_rng(0)
images = [view(photo, degrees, rng) for degrees in (-16, 0, 16)]

kd = KDDescriptor(1500)
features = [image_features(kd, image, index) for index, image in enumerate(images)]
matcher = cv2.detail_BestOf2NearestMatcher(False, 0.15)  # 1 - 0.85, the ratio for KD
pairs = matcher.apply2(features)
matcher.collectGarbage()
found, cameras = cv2.detail_HomographyBasedEstimator().apply(features, pairs, None)
if not found:
    raise SystemExit("the cameras could not be estimated")
for camera in cameras:
    camera.R = camera.R.astype(np.float32)
adjuster = cv2.detail_BundleAdjusterRay()
adjuster.setConfThresh(1)
found, cameras = adjuster.apply(features, pairs, cameras)
scale = float(np.median([camera.focal for camera in cameras]))
print(
    f"focal lengths: {', '.join(f'{camera.focal:.0f}' for camera in cameras)} px, true {FOCAL:.0f}"
)

warper = cv2.PyRotationWarper("spherical", scale)
blender, corners, warped, masks = cv2.detail_MultiBandBlender(), [], [], []
for image, camera in zip(images, cameras, strict=True):
    K, R = camera.K().astype(np.float32), camera.R
    corner, part = warper.warp(image, K, R, cv2.INTER_LINEAR, cv2.BORDER_REFLECT)
    white = np.full(image.shape[:2], 255, np.uint8)
    masks.append(warper.warp(white, K, R, cv2.INTER_NEAREST, cv2.BORDER_CONSTANT)[1])
    corners.append(corner)
    warped.append(part)
blender.prepare(cv2.detail.resultRoi(corners, [part.shape[1::-1] for part in warped]))
for corner, part, mask in zip(corners, warped, masks, strict=True):
    blender.feed(part.astype(np.int16), mask, corner)
panorama = np.clip(blender.blend(None, None)[0], 0, 255).astype(np.uint8)
cv2.imwrite(args.out, panorama)
print(
    f"wrote {args.out}: {panorama.shape[1]} x {panorama.shape[0]} px of {len(images)} photographs"
)
