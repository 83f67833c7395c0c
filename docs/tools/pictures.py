"""Draw the pictures of the README and of the documentation again.

    python docs/tools/pictures.py [NAME ...]

The photographs come with scikit-image.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import matplotlib
import numpy as np

matplotlib.use("Agg")

from kd_cv import KDDescriptor, MatchResult, match
from kd_cv.draw.images import plot_images, plot_matches
from kd_cv.draw.style import plt, style
from kd_cv.paper.figures import save_figures
from kd_cv.paper.material import Material

FOLDER = Path(__file__).parents[1] / "images"
KEYPOINTS, NEAR, LINES = 2000, 3.0, 160


def motorcycle() -> None:
    """Two photographs of a scene in depth: KD's matches and SIFT's, held against the truth."""
    from skimage import data

    left, right, disparity = data.stereo_motorcycle()
    images = [np.ascontiguousarray(image[..., ::-1]) for image in (left, right)]
    features = {"KD": KDDescriptor(KEYPOINTS), "SIFT": cv2.SIFT_create(KEYPOINTS)}
    with style():
        figure = plt.figure(figsize=(9.2, 6.9), layout="constrained")
        for part, (title, feature) in zip(figure.subfigures(2, 1), features.items(), strict=True):
            known, true = judged(match(*images, feature), disparity)
            points0, points1 = known
            share = f"{true.sum()} of {len(true)} matches are right"
            print(f"{title}: {share}")
            axes = plot_images(images, axes=part.subplots(1, 2))
            drawn = np.arange(len(true)) % (len(true) // LINES) == 0
            plot_matches(*axes, points0[drawn], points1[drawn], true[drawn], legend=False)
            part.suptitle(f"{title}: {share}, {100 * true.mean():.1f} %", fontsize=11)
        figure.savefig(FOLDER / "motorcycle.jpg", dpi=120, pil_kwargs={"quality": 88})


def judged(result: MatchResult, disparity: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Points of the matches whose truth was measured, and which are right within NEAR px."""
    points = [result.points0, result.points1]
    x, y = np.rint(points[0]).astype(int).T
    shift = disparity[y, x]
    known = np.isfinite(shift) & (shift > 0)
    expected = points[0] - np.stack([shift, np.zeros_like(shift)], axis=1)
    true = np.abs(points[1] - expected).max(axis=1) < NEAR
    return [p[known] for p in points], true[known]


def heat_maps() -> None:
    """As the paper's figure, at a size for a web page."""
    with TemporaryDirectory() as folder:
        (path,) = save_figures(["heat_maps"], folder, Material())
        cv2.imwrite(str(FOLDER / "heat_maps.jpg"), cv2.imread(str(path)))


def figure_of_the_paper(name: str) -> Callable[[], None]:
    return lambda: save_figures([name], FOLDER, Material(), lambda _, path: print(path))


PICTURES: dict[str, Callable[[], None]] = {
    "motorcycle": motorcycle,
    "heat_maps": heat_maps,
    **{
        name: figure_of_the_paper(name)
        for name in ("kernels", "parametrizations", "whitening", "eigenvalues")
    },
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
