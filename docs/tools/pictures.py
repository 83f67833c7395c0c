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
import tomllib

matplotlib.use("Agg")

from matplotlib.lines import Line2D

from experiments.paper.data import FigureData
from experiments.paper.figures import save_figures
from kd_cv import KDDescriptor, MatchResult, match
from kd_cv.viz.images import plot_images, plot_matches
from kd_cv.viz.palette import BLUE, GRAY, INK, INLIER, OUTLIER
from kd_cv.viz.style import plt, style

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


def views() -> None:
    """A wall from the front and from the side, matched plainly and with views: the demo's."""
    demo = FOLDER.parents[1] / "demos" / "wide_viewpoint.py"
    subprocess.run([sys.executable, demo, "--out", FOLDER / "views.jpg"], check=True)


def heat_maps() -> None:
    """As the paper's figure, at a size for a web page."""
    with TemporaryDirectory() as folder:
        (path,) = save_figures(["heat_maps"], folder, FigureData())
        cv2.imwrite(str(FOLDER / "heat_maps.jpg"), cv2.imread(str(path)))


def rooms() -> None:
    """The rooms of the package, layer over layer, as the contract in pyproject.toml has them."""
    (FOLDER / "rooms.svg").write_text(drawn_rooms(), encoding="utf-8")


def drawn_rooms() -> str:
    """The drawing as SVG: the rooms of a layer side by side, over those that they may import."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    width, height, gap, margin = 720, 30, 8, 40
    boxes = []
    for row, layer in enumerate(contract["layers"]):
        names = layer.split(" | ")
        side = (width - 2 * margin - gap * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            x, y = margin + column * (side + gap), gap + row * (height + gap)
            boxes += [
                f'<rect x="{x:g}" y="{y}" width="{side:g}" height="{height}" rx="4"/>',
                f'<text x="{x + side / 2:g}" y="{y + height / 2 + 5:g}">{name}</text>',
            ]
    total = len(contract["layers"]) * (height + gap) + gap
    arrow = f"M16 {gap}V{total - gap}M11 {total - 17}L16 {total - gap}L21 {total - 17}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}">',
        f"<style>rect{{fill:#fff;stroke:{BLUE}}}path{{fill:none;stroke:{GRAY};stroke-width:2}}"
        f"text{{font:15px monospace;text-anchor:middle;fill:{INK}}}</style>",
        f'<rect width="{width}" height="{total}" style="stroke:none"/>',
        *boxes, f'<path d="{arrow}"/>', "</svg>", "",
    ])  # fmt: skip


def figure_of_the_paper(name: str) -> Callable[[], None]:
    return lambda: print(*save_figures([name], FOLDER))


PICTURES: dict[str, Callable[[], None]] = {
    "motorcycle": motorcycle,
    "heat_maps": heat_maps,
    "views": views,
    "rooms": rooms,
    **{
        name: figure_of_the_paper(name)
        for name in ("kernels", "parametrizations", "whitening", "eigenvalues")
    },
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
