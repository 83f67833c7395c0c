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

from matplotlib.lines import Line2D

from kd_cv import KDDescriptor, MatchResult, match
from kd_cv.draw.images import plot_images, plot_matches
from kd_cv.draw.style import plt, style
from kd_cv.paper.figures import save_figures
from kd_cv.paper.material import Material
from kd_cv.pictures.palette import INLIER, OUTLIER

FOLDER = Path(__file__).parents[1] / "images"
KEYPOINTS, NEAR, EACH = 2000, 3.0, 6


def motorcycle() -> None:
    """Two photographs of a scene in depth: KD's matches and SIFT's, held against the truth."""
    from skimage import data

    left, right, disparity = data.stereo_motorcycle()
    images = [np.ascontiguousarray(image[..., ::-1]) for image in (left, right)]
    features = {"KD": KDDescriptor(KEYPOINTS), "SIFT": cv2.SIFT_create(KEYPOINTS)}
    with style():
        figure = plt.figure(figsize=(9.2, 7.1), layout="constrained")
        for part, (title, feature) in zip(figure.subfigures(2, 1), features.items(), strict=True):
            (points0, points1), true = judged(match(*images, feature), disparity)
            share = f"{true.sum()} of {len(true)} matches are right"
            print(f"{title}: {share}")
            axes = plot_images([faded(image) for image in images], axes=part.subplots(1, 2))
            drawn = np.arange(len(true)) % EACH == 0
            plot_matches(*axes, points0[drawn & true], points1[drawn & true])
            # The wrong ones over the others, and stronger: they are what a reader looks for.
            wrong = drawn & ~true
            nobody = np.zeros(wrong.sum(), bool)
            plot_matches(*axes, points0[wrong], points1[wrong], nobody, linewidth=1.8, legend=False)
            part.suptitle(f"{title}: {share}, {100 * true.mean():.1f} %", fontsize=12)
        kinds = {"right": INLIER, f"wrong; one match in {EACH} is drawn": OUTLIER}
        lines = [Line2D([], [], color=c, linewidth=2.5, label=kind) for kind, c in kinds.items()]
        figure.legend(handles=lines, loc="outside lower center", ncols=2, fontsize=10)
        figure.savefig(FOLDER / "motorcycle.jpg", dpi=120, pil_kwargs={"quality": 88})


def faded(image: np.ndarray) -> np.ndarray:
    """Halfway to its gray values and a little lighter, so that lines are seen on it."""
    gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    return cv2.addWeighted(image, 0.45, gray, 0.45, 25)


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
