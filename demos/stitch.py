"""Stitch photographs of a turning camera with OpenCV's own pipeline, by KD's features.

python demos/stitch.py [left.jpg middle.jpg right.jpg ...] --out stitched.png
"""

import argparse

import cv2
import numpy as np

from kd_cv import KDDescriptor
from kd_cv.io.files import utf8
from kd_cv.opencv.stitching import image_features

FOCAL, SIZE = 500.0, (420, 420)  # of the example's views, in pixels


def example() -> list[np.ndarray]:
    """What a camera sees that turns to the right: x ~ K R^T K^-1 X, darker and noisy."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    photo = cv2.resize(np.ascontiguousarray(data.coffee()[:, :, ::-1]), (900, 600))
    K0 = np.array([[FOCAL, 0, 450], [0, FOCAL, 300], [0, 0, 1]])
    K1 = np.array([[FOCAL, 0, SIZE[0] / 2], [0, FOCAL, SIZE[1] / 2], [0, 0, 1]])
    rng, views = np.random.default_rng(0), []
    for degrees in (-16, 0, 16):
        R = cv2.Rodrigues(np.deg2rad([0.0, degrees, 0.0]))[0]
        seen = cv2.warpPerspective(photo, K1 @ R.T @ np.linalg.inv(K0), SIZE)
        noise = rng.normal(0, 8, seen.shape)
        views.append(np.clip(0.9 * seen + noise, 0, 255).astype(np.uint8))
    return views


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("photos", type=utf8, nargs="*", help="two photographs or more; none: example")
parser.add_argument("--out", type=utf8, default="stitched.png")
args = parser.parse_args()
if len(args.photos) == 1:
    parser.error("give at least two photographs, or none")
images = [cv2.imread(path) for path in args.photos] if args.photos else example()
if any(image is None for image in images):
    parser.error(f"cannot read one of {', '.join(args.photos)} as an image")

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
true = "" if args.photos else f", true {FOCAL:.0f}"
print(f"focal lengths: {', '.join(f'{camera.focal:.0f}' for camera in cameras)} px{true}")

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
if not cv2.imwrite(args.out, panorama):
    raise SystemExit(f"cannot write {args.out}")
width, height = panorama.shape[1::-1]
print(f"{len(images)} photographs, {width} x {height} pixels: {args.out}")
