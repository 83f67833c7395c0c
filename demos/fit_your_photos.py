"""Fit a whitening on your own photographs and compare it with the raw descriptor.

python demos/fit_your_photos.py [folder] --out fitted.png
"""

import argparse
import tempfile
from pathlib import Path

import cv2
import numpy as np
from photographs import example, warped, write

from kd_cv import DoG, KDDescriptor, match
from kd_cv.fit import fit_photos

try:
    from kd_cv.viz.matches import draw_matches
except ImportError as error:
    raise SystemExit(str(error)) from None

NAMES = ("coffee", "brick", "coins", "astronaut", "rocket", "gravel")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", nargs="?", help="a folder of photographs; without it, an example")
parser.add_argument("--out", default="fitted.png")
args = parser.parse_args()
with tempfile.TemporaryDirectory() as work:
    if args.folder is None:
        for name, image in zip(NAMES, example(*NAMES), strict=True):
            write(f"{work}/{name}.png", image)
    try:
        # Pairs to learn from: keypoints of each photograph and of random warps of it.
        matrices = fit_photos(Path(args.folder or work), "warp", kernels=["concat"], trained=False)
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from None

# A photograph that the fit has not seen, and a warp of it.
(image0,) = example("chelsea")
corners = [[60, 30], [420, 0], [450, 260], [20, 299]]
image1 = np.asarray(cv2.convertScaleAbs(warped(image0, corners, (451, 300)), alpha=0.7))
results = {}
for title, settings in {
    "raw descriptor": {"whitening": None},
    "whitened, fitted on the other photographs": {"weights": matrices},
}.items():
    results[title] = match(image0, image1, KDDescriptor(**settings), detector=DoG(1500))
    print(f"{title}: {results[title]}")
write(args.out, draw_matches(image0, image1, results, 420))
print(f"both: {args.out}")
