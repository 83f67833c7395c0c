"""Follow a flat thing (a poster, a page, a box) in a video or before a camera.

python demos/live.py [reference.jpg film.mp4] --out last_frame.png
python demos/live.py poster.jpg 0 --show        # camera 0, in a window; q ends
"""

import argparse
import time

import cv2
import numpy as np
from photographs import example, load, warped, write

from kd_cv import KDDescriptor, match


def frames(film: str | None):
    """The frames of a film or of a camera; without one, of a photograph that turns and tilts."""
    if film is not None:
        camera = cv2.VideoCapture(int(film) if film.isdecimal() else film)
        while (frame := camera.read()[1]) is not None:
            yield frame
        return
    (photo,) = example("coffee")
    box = np.float32([[0, 0], [600, 0], [600, 400], [0, 400]]) - [300, 200]
    for t in np.linspace(0, 2 * np.pi, 25):
        R = cv2.getRotationMatrix2D((0, 0), 35 * np.sin(t), 0.75 + 0.2 * np.cos(t))[:, :2]
        yield warped(photo, box @ R.T + [320, 240 + 30 * np.sin(2 * t)], (640, 480))


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("reference", nargs="?", help="a photograph; without it, an example")
parser.add_argument("film", nargs="?", help="a video, or the number of a camera")
parser.add_argument("--out", default="live.png", help="the last frame that shows it")
parser.add_argument("--show", action="store_true", help="in a window")
args = parser.parse_args()
(reference,) = load([args.reference] if args.reference else [], "coffee")
outline = np.float64([[[0, 0], [1, 0], [1, 1], [0, 1]]]) * reference.shape[1::-1] - 0.5
kd, seconds, followed, last = KDDescriptor(1000), [], 0, None
for frame in frames(args.film):
    start = time.perf_counter()
    result = match(reference, frame, kd, views=1)
    seconds.append(time.perf_counter() - start)
    if result.success:
        corners = cv2.perspectiveTransform(outline, result.H_0to1)
        cv2.polylines(frame, np.int32(corners), True, (66, 228, 240), 3, cv2.LINE_AA)
        followed, last = followed + 1, frame
    if args.show:
        cv2.imshow("kd_cv, q ends", frame)
        if cv2.waitKey(1) == ord("q"):
            break
if last is None:
    raise SystemExit(f"not seen in {len(seconds)} frames")
write(args.out, last)
rate = 1 / np.median(seconds)
print(f"seen in {followed} of {len(seconds)} frames, {rate:.0f} frames/s: {args.out}")
