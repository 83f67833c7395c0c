"""Find an object in a cluttered photograph: matches, a homography, and its outline.

python demos/find_object.py [object.jpg scene.jpg] --out found.png
"""

import cv2
import numpy as np
from photographs import arguments, example, load, warped, write

from kd_cv import match


def wall() -> list[np.ndarray]:
    """A photograph, and a brick wall on which it hangs askew beside another one."""
    thing, other, bricks = example("coffee", "chelsea", "brick")
    scene = cv2.resize(bricks, (900, 675))
    for photo, corners in (
        (thing, [[240, 190], [600, 120], [640, 400], [265, 420]]),
        (other, [[500, 430], [840, 450], [800, 640], [470, 620]]),
    ):
        hung = warped(photo, corners, (900, 675))
        mask = cv2.fillPoly(np.zeros((675, 900), np.uint8), [np.int32(corners)], 255) > 0
        scene[mask] = hung[mask]
    noise = np.random.default_rng(0).normal(0, 8, scene.shape)
    return [thing, np.clip(0.8 * scene + noise, 0, 255).astype(np.uint8)]


args = arguments(__doc__, "found.png")
thing, scene = load(args.photos) if args.photos else wall()
result = match(thing, scene)
if not result.success:
    raise SystemExit(f"not found: {result.failure}")

height, width = thing.shape[:2]
outline = np.float64([[[0, 0], [width, 0], [width, height], [0, height]]]) - 0.5
seen = cv2.perspectiveTransform(outline, result.H_0to1)[0]
picture = scene.copy()
cv2.polylines(picture, [np.int32(seen)], True, (66, 228, 240), 4, cv2.LINE_AA)
for x, y in result.points1[result.inliers]:
    cv2.circle(picture, (round(x), round(y)), 3, (233, 180, 86), -1, cv2.LINE_AA)
small = cv2.resize(thing, (round(width * scene.shape[0] / height), scene.shape[0]))
write(args.out, np.hstack([small, picture]))
print(f"found by {int(result.inliers.sum())} of {len(result.matches)} matches: {args.out}")
