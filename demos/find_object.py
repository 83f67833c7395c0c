"""Find an object in a cluttered photograph: matches, RANSAC, and its outline.

python demos/find_object.py [object.jpg scene.jpg] --out found.png
"""

import argparse

import cv2
import numpy as np

from kd_cv import match
from kd_cv.io.files import utf8
from kd_cv.viz.palette import INLIER, OUTLINE, bgr


def example() -> tuple[np.ndarray, np.ndarray]:
    """A photograph, and a brick wall on which it hangs askew among others."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    scene = cv2.cvtColor(cv2.resize(data.brick(), (900, 675)), cv2.COLOR_GRAY2BGR)
    photos = {name: getattr(data, name)()[:, :, ::-1] for name in ("coffee", "chelsea", "rocket")}
    corners = {
        "coffee": [[240, 190], [600, 120], [640, 400], [265, 420]],
        "chelsea": [[500, 350], [840, 400], [800, 610], [470, 590]],
        "rocket": [[40, 60], [330, 30], [345, 240], [65, 255]],
    }
    for name, photo in photos.items():
        height, width = photo.shape[:2]
        box = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
        H = cv2.getPerspectiveTransform(box, np.float32(corners[name]))
        hung = cv2.warpPerspective(np.ascontiguousarray(photo), H, (900, 675))
        inside = cv2.warpPerspective(np.full((height, width), 255, np.uint8), H, (900, 675))
        scene[inside > 127] = hung[inside > 127]
    noise = np.random.default_rng(0).normal(0, 8, scene.shape)
    return photos["coffee"], np.clip(0.8 * scene + noise, 0, 255).astype(np.uint8)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("photos", type=utf8, nargs="*", help="object and scene; none: an example")
parser.add_argument("--out", type=utf8, default="found.png")
args = parser.parse_args()
if len(args.photos) not in (0, 2):
    parser.error("give the object and the scene, or none")
thing, scene = map(cv2.imread, args.photos) if args.photos else example()
if thing is None or scene is None:
    parser.error(f"cannot read {' or '.join(args.photos)} as an image")

result = match(thing, scene)
if not result.success:
    raise SystemExit(f"not found: {int(result.inliers.sum())} inliers of {len(result.matches)}")

height, width = thing.shape[:2]
outline = np.float64([[[0, 0], [width, 0], [width, height], [0, height]]]) - 0.5
seen = cv2.perspectiveTransform(outline, result.H_0to1)[0]
picture = cv2.convertScaleAbs(scene, alpha=0.6)
mask = cv2.fillPoly(np.zeros(scene.shape[:2], np.uint8), [np.int32(seen)], 255)
picture[mask > 0] = scene[mask > 0]
cv2.polylines(picture, [np.int32(seen)], True, bgr(OUTLINE), 4, cv2.LINE_AA)
for x, y in result.points1[result.inliers]:
    cv2.circle(picture, (round(x), round(y)), 3, bgr(INLIER), -1, cv2.LINE_AA)

small = cv2.resize(thing, (round(width * scene.shape[0] / height), scene.shape[0]))
if not cv2.imwrite(args.out, np.hstack([small, picture])):
    raise SystemExit(f"cannot write {args.out}")
print(f"found by {int(result.inliers.sum())} of {len(result.matches)} matches: {args.out}")
