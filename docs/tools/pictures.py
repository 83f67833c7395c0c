"""Draw the pictures of the README and of the documentation again.

    python docs/tools/pictures.py [NAME ...]

The photographs come with scikit-image.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib.lines import Line2D

from experiments.paper.data import FigureData
from experiments.paper.figures import save_figures
from kd_cv import KDDescriptor, MatchResult, match
from kd_cv.viz.images import plot_images, plot_matches
from kd_cv.viz.palette import INLIER, OUTLIER
from kd_cv.viz.style import plt, style

FOLDER = Path(__file__).parents[1] / "images"
KEYPOINTS, NEAR, EACH = 2000, 3.0, 6


def motorcycle() -> None:
    """Two photographs of a scene in depth: KD's matches and SIFT's, held against the truth."""
    from skimage import data

    left, right, disparity = data.stereo_motorcycle()
    images = [np.ascontiguousarray(image[..., ::-1]) for image in (left, right)]
    features = {"KD": (KDDescriptor(KEYPOINTS), 0.85), "SIFT": (cv2.SIFT_create(KEYPOINTS), 0.8)}
    with style():
        figure = plt.figure(figsize=(9.2, 7.1), layout="constrained")
        for part, (title, usual) in zip(figure.subfigures(2, 1), features.items(), strict=True):
            feature, ratio = usual
            result = match(*images, feature, ratio=ratio)
            (points0, points1), true = judged(result, disparity)
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


def views() -> None:
    """A wall from the front and from the side, matched plainly and with views: the demo's."""
    demo = FOLDER.parents[1] / "demos" / "wide_viewpoint.py"
    subprocess.run([sys.executable, demo, "--out", FOLDER / "views.jpg"], check=True)


def heat_maps() -> None:
    """As the paper's figure, at a size for a web page."""
    with TemporaryDirectory() as folder:
        (path,) = save_figures(["heat_maps"], folder, FigureData())
        cv2.imwrite(str(FOLDER / "heat_maps.jpg"), cv2.imread(str(path)))


def figure_of_the_paper(name: str) -> Callable[[], None]:
    return lambda: print(*save_figures([name], FOLDER))


PICTURES: dict[str, Callable[[], None]] = {
    "motorcycle": motorcycle,
    "heat_maps": heat_maps,
    "views": views,
    **{
        name: figure_of_the_paper(name)
        for name in ("kernels", "parametrizations", "whitening", "eigenvalues")
    },
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
