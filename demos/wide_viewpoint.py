"""Match photographs taken from very different places: synthetic views beside plain matching.

python demos/wide_viewpoint.py [left.jpg right.jpg] --out views.png
"""

import cv2
import numpy as np
from photographs import arguments, example, load, write

from kd_cv import match

try:
    from kd_cv.viz.matches import draw_matches
except ImportError as error:
    raise SystemExit(str(error)) from None


def wall() -> list[np.ndarray]:
    """A wall of photographs, from the front and at 75 degrees from the side."""
    photos = [cv2.resize(p, (320, 480)) for p in example("astronaut", "coffee", "chelsea")]
    wall = np.hstack(photos)
    height, width = wall.shape[:2]
    K0 = np.array([[900, 0, width / 2], [0, 900, height / 2], [0, 0, 1.0]])
    K1 = np.array([[900, 0, 90], [0, 900, height / 2], [0, 0, 1.0]])
    R = cv2.Rodrigues(np.array([0, np.deg2rad(75), 0]))[0]
    # H = K1 (R - t n^T) K0^-1: the wall lies at distance 1 and turns about its middle.
    depth = np.array([0, 0, 1.0])
    H = K1 @ (R - np.outer(R @ depth - depth, depth)) @ np.linalg.inv(K0)
    blurred = cv2.GaussianBlur(wall, (0, 0), sigmaX=2.0, sigmaY=0.3)
    return [wall, cv2.convertScaleAbs(cv2.warpPerspective(blurred, H, (360, height)), alpha=0.8)]


args = arguments(__doc__, "views.png")
left, right = load(args.photos) if args.photos else wall()
plain = match(left, right, views=1)
views = match(left, right)  # more views, since there are few inliers
for result in (plain, views):
    print(f"views={result.views}: {int(result.inliers.sum())} of {len(result.matches)} matches fit")
results = {f"views={result.views}": result for result in (plain, views)}
write(args.out, draw_matches(left, right, results, height=400))
print(f"picture: {args.out}")
