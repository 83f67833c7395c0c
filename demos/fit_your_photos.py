"""Fit the whitening on your own photographs and see what it finds that the raw vector does not.

python demos/fit_your_photos.py [folder] --out fitted.png
"""

import argparse
import tempfile
from pathlib import Path

import cv2
import numpy as np

from kd_cv import DoG, KDDescriptor, match
from kd_cv.fit.photographs import fit_photos, read_reduced, split_photos
from kd_cv.fit.warps import random_warps
from kd_cv.io.files import utf8
from kd_cv.io.images import list_photos
from kd_cv.matching.geometry import reprojection_errors
from kd_cv.viz.matches import draw_matches
from kd_cv.whitening import save

NAMES = ("coffee", "brick", "chelsea", "coins", "astronaut", "rocket", "gravel")


def example(folder: Path) -> Path:
    """Photographs of scikit-image as files."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    for number, name in enumerate(NAMES):
        image = getattr(data, name)()
        image = image[:, :, ::-1] if image.ndim == 3 else image
        cv2.imwrite(str(folder / f"{number}-{name}.png"), image)
    return folder


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("folder", nargs="?", help="a folder of photographs; none: an example")
parser.add_argument("--out", type=utf8, default="fitted.png")
args = parser.parse_args()
with tempfile.TemporaryDirectory() as work:
    try:
        photos = list_photos(args.folder or example(Path(work)))
        training, held_out = split_photos(photos)
        # Pairs to learn from: keypoints of each photograph and of random warps of it.
        matrices = fit_photos(training, "warp", kernels=["concat"])
    except ValueError as error:
        raise SystemExit(str(error)) from error
    path = Path(work) / "mine.npz"
    save(path, matrices)
    descriptors = {
        "Raw descriptor": KDDescriptor(whitening=None),
        "Whitened, fitted on the other photographs": KDDescriptor(weights=path, whitening="ws"),
    }
    photo = read_reduced((held_out or training)[0])
    if photo is None:
        raise SystemExit(f"cannot read {(held_out or training)[0]}")

# Another warp of a photograph that the fit has not seen: the true homography is known.
images, H_1tok = random_warps(photo, 2, np.random.default_rng(4))
image0, image1 = (cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) for image in images)
detector = DoG(1500)
results = {}
for title, descriptor in descriptors.items():
    result = match(image0, image1, descriptor, detector=detector)
    errors = reprojection_errors(result.points0, result.points1, H_1tok[1])
    count = int((errors <= 3).sum())
    print(f"{title}: {count} of {len(result.matches)} matches are right")
    results[title] = result
if not cv2.imwrite(args.out, draw_matches(image0, image1, results, 420)):
    raise SystemExit(f"cannot write {args.out}")
fitted = matrices["concat", 32].provenance
print(f"fitted on {fitted['pairs']} pairs of {fitted['fitted_on']}: {args.out}")
