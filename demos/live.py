"""Follow a flat thing (a poster, a page, a box) through a video or before a camera, live.

python demos/live.py [reference.jpg film.mp4] --out last_frame.png --video followed.avi
python demos/live.py poster.jpg 0 --show        # camera 0, in a window; q ends
"""

import argparse
import tempfile
import time

import cv2
import numpy as np

from kd_cv import KDDescriptor
from kd_cv.io.files import utf8
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.matching.two_view import find_homography

MJPG = cv2.VideoWriter_fourcc(*"MJPG")


def example() -> tuple[np.ndarray, str]:
    """A photograph, and a film of it by a camera that wanders and turns."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("for the example: pip install scikit-image") from None
    photo = np.ascontiguousarray(data.coffee()[:, :, ::-1])
    box = np.float32([[0, 0], [600, 0], [600, 400], [0, 400]])
    film = cv2.VideoWriter(path := tempfile.mkdtemp() + "/film.avi", MJPG, 25, (640, 480))
    for t in np.linspace(0, 2 * np.pi, 40):
        R = cv2.getRotationMatrix2D((0, 0), 35 * np.sin(t), 1)[:, :2].T
        seen = (box - [300, 200]) @ R * (0.75 + 0.2 * np.cos(t)) + [320, 240 + 30 * np.sin(2 * t)]
        seen[:2] += 25 * np.sin(t)  # tilted
        H = cv2.getPerspectiveTransform(box, np.float32(seen))
        film.write(cv2.warpPerspective(photo, H, (640, 480), borderValue=(90, 110, 120)))
    return photo, path


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("reference", type=utf8, nargs="?", help="a photograph; none: an example")
parser.add_argument("film", type=utf8, nargs="?", default="0", help="a video, or a camera's number")
parser.add_argument("--out", type=utf8, default="live.png", help="the last frame that shows it")
parser.add_argument("--video", type=utf8, help="write all frames here, as .avi")
parser.add_argument("--show", action="store_true", help="in a window")
args = parser.parse_args()
reference, source = (cv2.imread(args.reference), args.film) if args.reference else example()
camera = cv2.VideoCapture(int(source) if source.isdecimal() else source)
if reference is None or not camera.isOpened():
    raise SystemExit(f"cannot read {args.reference} or {source}")

kd = KDDescriptor(1000)
keypoints0, descriptors0 = kd.detectAndCompute(reference, None)
points0 = cv2.KeyPoint.convert(keypoints0)
outline = np.float64([[[0, 0], [1, 0], [1, 1], [0, 1]]]) * reference.shape[1::-1] - 0.5
seconds, followed, last, film = [], 0, None, None
while (frame := camera.read()[1]) is not None:
    start = time.perf_counter()
    keypoints1, descriptors1 = kd.detectAndCompute(frame, None)
    matches, _ = match_descriptors(descriptors0, descriptors1, ratio=0.85)
    points1 = cv2.KeyPoint.convert(keypoints1, matches[:, 1].tolist())
    H_0to1, inliers = find_homography(points0[matches[:, 0]], points1)
    seconds.append(time.perf_counter() - start)
    rate = f"{1 / np.median(seconds[-15:]):.0f} frames/s, {int(inliers.sum())} inliers"
    if inliers.sum() > 8 + 0.3 * len(matches):
        corners = cv2.perspectiveTransform(outline, H_0to1)
        cv2.polylines(frame, np.int32(corners), True, (66, 228, 240), 3, cv2.LINE_AA)
        followed, last = followed + 1, frame
    cv2.putText(frame, rate, (12, 30), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (66, 228, 240), 2)
    if args.video:
        film = film or cv2.VideoWriter(args.video, MJPG, 25, frame.shape[1::-1])
        film.write(frame)
    if args.show:
        cv2.imshow("kd_cv, q ends", frame)
        if cv2.waitKey(1) == ord("q"):
            break
if last is None or not cv2.imwrite(args.out, last):
    raise SystemExit(f"not seen in {len(seconds)} frames, or {args.out} cannot be written")
print(f"seen in {followed} of {len(seconds)} frames, {rate}: {args.out}")
