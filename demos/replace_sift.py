"""Put kd_cv where cv2.SIFT was: an ordinary OpenCV program, one line of it changed.

python demos/replace_sift.py [left.jpg right.jpg] --out replaced.png
"""

import argparse

import cv2
import numpy as np

from kd_cv import KDDescriptor
from kd_cv.io.files import utf8
from kd_cv.viz.palette import INLIER, bgr


def example() -> list[np.ndarray]:
    """A stereo pair."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    return [np.ascontiguousarray(image[..., ::-1]) for image in data.stereo_motorcycle()[:2]]


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("photos", type=utf8, nargs="*", help="two photographs; none: an example")
parser.add_argument("--out", type=utf8, default="replaced.png")
args = parser.parse_args()
if len(args.photos) not in (0, 2):
    parser.error("give two photographs, or none")
image0, image1 = map(cv2.imread, args.photos) if args.photos else example()
if image0 is None or image1 is None:
    parser.error(f"cannot read {' or '.join(args.photos)} as an image")

# feature = cv2.SIFT_create()
feature = KDDescriptor()

keypoints0, descriptors0 = feature.detectAndCompute(image0, None)
keypoints1, descriptors1 = feature.detectAndCompute(image1, None)
pairs = cv2.BFMatcher(feature.defaultNorm()).knnMatch(descriptors0, descriptors1, k=2)
matches = [best for best, second in pairs if best.distance < 0.85 * second.distance]
if len(matches) < 8:
    raise SystemExit(f"only {len(matches)} matches: the photographs have nothing in common")

points0 = np.float32([keypoints0[m.queryIdx].pt for m in matches])
points1 = np.float32([keypoints1[m.trainIdx].pt for m in matches])
F_0to1, inliers = cv2.findFundamentalMat(points0, points1, cv2.USAC_MAGSAC, 1.0)
if F_0to1 is None:
    raise SystemExit(f"no fundamental matrix fits the {len(matches)} matches")

drawn = inliers.ravel().astype(bool) & (np.arange(len(matches)) % 12 == 0)  # one in twelve
picture = cv2.drawMatches(
    image0, keypoints0, image1, keypoints1, matches, None,
    matchColor=bgr(INLIER), matchesMask=drawn.astype(int).tolist(),
    flags=cv2.DrawMatchesFlags_NOT_DRAW_SINGLE_POINTS,
)  # fmt: skip
if not cv2.imwrite(args.out, picture):
    raise SystemExit(f"cannot write {args.out}")
print(f"{int(inliers.sum())} of {len(matches)} matches agree with F_0to1: {args.out}")
