"""How often nearest neighbours through Kornia's LAFs are those through OpenCV's keypoints.

python -m experiments lafs [FOLDER ...]

Each photograph, of scikit-image and of the folders, is matched with a warped copy of itself by
KDDescriptor at keypoints, by KDFeature at the same places as LAFs, and by KDModule in
kornia.feature.LAFDescriptor. All keypoints count, also those without a true partner.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from kornia.feature import LAFDescriptor
from rich.progress import track
from skimage import data

from kd_cv import KDDescriptor, KDFeature
from kd_cv.io.images import list_photos
from kd_cv.nn.lafs import lafs_from_keypoints

NAMES = ("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "rocket")
# Turned and shrunk; turned and enlarged. The third row is per pixel of a 512-pixel image.
WARPS = (
    np.array([[0.8, 0.25, 20.0], [-0.2, 0.85, 80.0], [1e-4, 2e-4, 1.0]]),
    np.array([[1.3, -0.3, 40.0], [0.35, 1.2, 0.0], [2e-4, -1e-4, 1.0]]),
)
WAYS = ("KDFeature, float image", "KDFeature, 8-bit image", "LAFDescriptor(KDModule)")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("lafs", description=str(__doc__).splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="more photographs")
    parser.add_argument("--most", type=int, default=10, help="photographs of a folder")
    parser.add_argument("--keypoints", type=int, default=1000)
    args = parser.parse_args(arguments)
    photos = [as_gray(getattr(data, name)()) for name in NAMES]
    for folder in args.folders:
        found = list_photos(folder)
        photos += [
            cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
            for path in found[:: max(1, len(found) // args.most)][: args.most]
        ]
    kd = KDDescriptor()
    feature = KDFeature(descriptor=kd.module())
    same, counts = [], []
    for i, photo in enumerate(track(photos, "Matching")):
        size = photo.shape[::-1]
        warped = cv2.warpPerspective(
            photo, WARPS[i % 2], size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
        )
        descriptors = [described(gray, kd, feature, args.keypoints) for gray in (photo, warped)]
        nearest = [(a @ b.T).argmax(axis=1) for a, b in zip(*descriptors, strict=True)]
        float_image, bytes_image, keypoints, kornias = nearest
        pairs = ((float_image, keypoints), (bytes_image, keypoints), (bytes_image, kornias))
        same.append([np.mean(a == b) for a, b in pairs])
        counts.append(len(keypoints))
    mean, worst = np.average(same, axis=0, weights=counts), np.min(same, axis=0)
    print(f"{len(photos)} photographs, {sum(counts):,} keypoints\n")
    print("| against KDDescriptor | same nearest neighbour | worst photograph |")
    print("|---|---|---|")
    for row in zip(WAYS, mean, worst, strict=True):
        print("| {} | {:.1%} | {:.1%} |".format(*row))
    return 0


def as_gray(photo: np.ndarray) -> np.ndarray:
    return photo if photo.ndim == 2 else cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)


def described(
    gray: np.ndarray, kd: KDDescriptor, feature: KDFeature, most: int
) -> list[np.ndarray]:
    """Rows (N, D) at keypoints, of the image in floats and in bytes, and at LAFs, two ways."""
    keypoints = cv2.SIFT_create(most).detect(gray, None)
    floats = np.float32(gray) / 255
    image, lafs = torch.from_numpy(floats)[None, None], lafs_from_keypoints(keypoints)
    by_kornia = LAFDescriptor(feature.descriptor, patch_size=feature.descriptor.patch_size)
    with torch.no_grad():
        through_lafs = [feature.describe(image, lafs)[0].numpy(), by_kornia(image, lafs)[0].numpy()]
    return [kd.compute(floats, keypoints)[1], kd.compute(gray, keypoints)[1], *through_lafs]
