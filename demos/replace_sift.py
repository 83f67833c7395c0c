"""Put KDDescriptor where cv2.SIFT was: an ordinary OpenCV program, one line of it changed.

python demos/replace_sift.py [left.jpg right.jpg] --out replaced.png
"""

import cv2
import numpy as np
from photographs import arguments, load, write

from kd_cv import KDDescriptor

args = arguments(__doc__, "replaced.png")
image0, image1 = load(args.photos, "stereo_motorcycle")

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
    matchColor=(233, 180, 86), matchesMask=drawn.astype(int).tolist(),
    flags=cv2.DrawMatchesFlags_NOT_DRAW_SINGLE_POINTS,
)  # fmt: skip
write(args.out, picture)
print(f"{int(inliers.sum())} of {len(matches)} matches agree with F_0to1: {args.out}")
