"""Stitch photographs, taken from one place and given from left to right, into a panorama.

python demos/panorama.py [left.jpg middle.jpg right.jpg ...] --out panorama.png
"""

import argparse

import cv2
import numpy as np

from kd_cv import match
from kd_cv.io.files import utf8


def example() -> list[np.ndarray]:
    """Three views of one photograph, by a camera that turns and changes its exposure."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    photo = np.ascontiguousarray(data.hubble_deep_field()[:, :, ::-1])
    K = np.array([[900.0, 0, 500], [0, 900, 436], [0, 0, 1]])
    views = []
    for turn, tilt, gain in ((-11, 2, 0.8), (0, -1, 1.0), (11, 2, 1.25)):
        R, _ = cv2.Rodrigues(np.deg2rad([tilt, -turn, tilt]))
        H = np.array([[1, 0, -220], [0, 1, -186], [0, 0, 1]]) @ K @ R @ np.linalg.inv(K)
        view = cv2.warpPerspective(photo, H, (560, 500), flags=cv2.INTER_CUBIC)
        views.append(np.clip(gain * view.astype(float), 0, 255).astype(np.uint8))
    return views


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("photos", type=utf8, nargs="*", help="two photographs or more; none: example")
parser.add_argument("--out", type=utf8, default="panorama.png")
args = parser.parse_args()
if len(args.photos) == 1:
    parser.error("give at least two photographs, or none")
views = [cv2.imread(path) for path in args.photos] if args.photos else example()
for path, view in zip(args.photos, views, strict=False):
    if view is None:
        parser.error(f"cannot read {path} as an image")

# H[i]: from view i to the middle one, as a chain of neighbours.
middle = len(views) // 2
H, gain = {middle: np.eye(3)}, {middle: 1.0}
to_the_left = [(i, i + 1) for i in reversed(range(middle))]
for i, j in to_the_left + [(i, i - 1) for i in range(middle + 1, len(views))]:
    result = match(views[i], views[j])
    if not result.success:
        raise SystemExit(f"photographs {i + 1} and {j + 1} do not overlap")
    H[i] = H[j] @ result.H_0to1
    seen = cv2.warpPerspective(views[i], result.H_0to1, views[j].shape[1::-1])
    overlap = (seen.min(axis=2) > 5) & (views[j].min(axis=2) > 5)
    gain[i] = gain[j] * views[j][overlap].mean() / seen[overlap].mean()
    print(f"photographs {i + 1} and {j + 1}: {int(result.inliers.sum())} inliers")

corners = []
for i, view in enumerate(views):
    height, width = view.shape[:2]
    box = np.float64([[[0, 0], [width, 0], [width, height], [0, height]]])
    corners.append(cv2.perspectiveTransform(box, H[i])[0])
low = np.floor(np.concatenate(corners).min(axis=0))
size = np.ceil(np.concatenate(corners).max(axis=0) - low).astype(int)
if size.max() > 20_000:
    raise SystemExit(f"a flat panorama of {size[0]} x {size[1]} pixels: the camera turned too far")

# Each view fades towards its border, where others take over.
total = np.zeros((size[1], size[0], 4), np.float32)
for i, view in enumerate(views):
    h, w = np.indices(view.shape[:2]) + 1
    fade = np.minimum(np.minimum(h, h[::-1]), np.minimum(w, w[:, ::-1])).astype(np.float32) ** 2
    layer = np.dstack([gain[i] * view * fade[:, :, None], fade]).astype(np.float32)
    shift = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1]])
    total += cv2.warpPerspective(layer, shift @ H[i], tuple(map(int, size)))
weight = total[:, :, 3:]
panorama = np.where(weight > 0, total[:, :, :3] / np.maximum(weight, 1e-6), 255)
if not cv2.imwrite(args.out, np.clip(panorama, 0, 255).astype(np.uint8)):
    raise SystemExit(f"cannot write {args.out}")
print(f"{len(views)} photographs, {size[0]} x {size[1]} pixels: {args.out}")
