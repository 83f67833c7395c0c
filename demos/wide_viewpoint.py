"""Match photographs taken from very different places: synthetic views beside plain matching.

python demos/wide_viewpoint.py [left.jpg right.jpg] --out views.png
"""

import argparse

import cv2
import numpy as np

from kd_cv import match
from kd_cv.io.files import utf8
from kd_cv.viz.matches import draw_matches


def example() -> tuple[np.ndarray, np.ndarray]:
    """A wall of photographs, from the front and at 75 degrees from the side."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    photos = [getattr(data, name)()[:, :, ::-1] for name in ("astronaut", "coffee", "chelsea")]
    wall = np.hstack([cv2.resize(photo, (320, 480)) for photo in photos])
    height, width = wall.shape[:2]
    K0 = np.array([[900, 0, width / 2], [0, 900, height / 2], [0, 0, 1.0]])
    K1 = np.array([[900, 0, 90], [0, 900, height / 2], [0, 0, 1.0]])
    R = cv2.Rodrigues(np.array([0, np.deg2rad(75), 0]))[0]
    # H = K1 (R - t n^T) K0^-1: the wall lies at distance 1 and turns about its middle.
    depth = np.array([0, 0, 1.0])
    H = K1 @ (R - np.outer(R @ depth - depth, depth)) @ np.linalg.inv(K0)
    blurred = cv2.GaussianBlur(wall, (0, 0), sigmaX=2.0, sigmaY=0.3)
    seen = cv2.warpPerspective(blurred, H, (360, height))
    noise = np.random.default_rng(0).normal(0, 4, seen.shape)
    return wall, np.clip(0.8 * seen + noise, 0, 255).astype(np.uint8)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("photos", type=utf8, nargs="*", help="two photographs; none: an example")
parser.add_argument("--out", type=utf8, default="views.png")
args = parser.parse_args()
if len(args.photos) not in (0, 2):
    parser.error("give two photographs, or none")
left, right = map(cv2.imread, args.photos) if args.photos else example()
if left is None or right is None:
    parser.error(f"cannot read {' or '.join(args.photos)} as an image")

plain = match(left, right, views=1)
views = match(left, right)  # more views, since there are few inliers
results = {f"views={result.views}": result for result in (plain, views)}
if not cv2.imwrite(args.out, draw_matches(left, right, results, height=400)):
    raise SystemExit(f"cannot write {args.out}")
for result in (plain, views):
    print(f"views={result.views}: {int(result.inliers.sum())} of {len(result.matches)} matches fit")
print(f"picture: {args.out}")
