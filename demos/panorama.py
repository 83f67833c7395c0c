"""Stitch two photographs of a turning camera with OpenCV's own pipeline and KD's features.

python demos/panorama.py [left.jpg right.jpg] --out panorama.png
"""

import cv2
import numpy as np
from photographs import arguments, example, load, write

from kd_cv import KDDescriptor
from kd_cv.opencv.stitching import image_features


def turning() -> list[np.ndarray]:
    """Two views of a camera that turns by 20 degrees: x ~ K R^T K^-1 X."""
    photo = cv2.resize(example("coffee")[0], (900, 600))
    K0 = np.array([[500.0, 0, 450], [0, 500, 300], [0, 0, 1]])
    K1 = np.array([[500.0, 0, 210], [0, 500, 210], [0, 0, 1]])
    turns = (cv2.Rodrigues(np.deg2rad([0.0, angle, 0.0]))[0] for angle in (-10, 10))
    maps = (K1 @ R.T @ np.linalg.inv(K0) for R in turns)
    return [cv2.warpPerspective(photo, H, (420, 420)) for H in maps]


args = arguments(__doc__, "panorama.png")
images = load(args.photos) if args.photos else turning()
kd = KDDescriptor(1500)
features = [image_features(kd, image, index) for index, image in enumerate(images)]
matcher = cv2.detail_BestOf2NearestMatcher(False, 0.15)  # 1 - 0.85, the ratio for KD
pairs = matcher.apply2(features)
found, cameras = cv2.detail_HomographyBasedEstimator().apply(features, pairs, None)
if not found or min(pair.confidence for pair in pairs if pair.src_img_idx < pair.dst_img_idx) < 1:
    raise SystemExit("the photographs do not overlap enough")
for camera in cameras:
    camera.R = camera.R.astype(np.float32)
found, cameras = cv2.detail_BundleAdjusterRay().apply(features, pairs, cameras)
print(f"focal lengths: {', '.join(f'{camera.focal:.0f}' for camera in cameras)} px")

warper = cv2.PyRotationWarper("spherical", float(np.median([c.focal for c in cameras])))
blender, parts = cv2.detail_MultiBandBlender(), []
for image, camera in zip(images, cameras, strict=True):
    K, white = camera.K().astype(np.float32), np.full(image.shape[:2], 255, np.uint8)
    corner, part = warper.warp(image, K, camera.R, cv2.INTER_LINEAR, cv2.BORDER_REFLECT)
    mask = warper.warp(white, K, camera.R, cv2.INTER_NEAREST, cv2.BORDER_CONSTANT)[1]
    parts.append((part.astype(np.int16), mask, corner))
blender.prepare(cv2.detail.resultRoi([p[2] for p in parts], [p[0].shape[1::-1] for p in parts]))
for part in parts:
    blender.feed(*part)
write(args.out, np.clip(blender.blend(None, None)[0], 0, 255).astype(np.uint8))
print(f"panorama: {args.out}")
