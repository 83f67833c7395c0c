"""Pictures are drawn where and as they should be, and compose."""

import cv2
import numpy as np
import pytest

data = pytest.importorskip("skimage.data")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from experiments.paper.patch_maps import patch_map, plot_patch_map  # noqa: E402
from kd_cv.descriptor.spec import Spec  # noqa: E402
from kd_cv.explain import explain_patches  # noqa: E402
from kd_cv.viz import (  # noqa: E402
    images,
    maps,
    palette,
    style,
)

PHOTO = data.astronaut()[..., ::-1].copy()


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    style.plt.close("all")


def rendered(target) -> np.ndarray:
    """The figure as it would be saved: (H, W, 3) RGB."""
    figure = style.figure_of(target)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3]


def color(name: str) -> np.ndarray:
    return np.round(255 * np.array(matplotlib.colors.to_rgb(name))).astype(int)


def near(image: np.ndarray, name: str, tolerance: int = 40) -> np.ndarray:
    """Where an image has about a colour."""
    return (np.abs(image.astype(int) - color(name)) <= tolerance).all(axis=2)


def to_row_column(ax, image: np.ndarray, x: float, y: float) -> tuple[int, int]:
    column, up = ax.transData.transform((x, y))
    return round(len(image) - 1 - up), round(column)


def test_images_keep_their_colours_and_coordinates():
    blue = np.zeros((40, 60, 3), np.uint8)
    blue[..., 0] = 255  # BGR
    large = np.zeros((1000, 4000), np.uint8)
    large[:, 2000:] = 255
    axes = images.plot_images([blue, large, blue[..., :1]], ["a", "b", "c"])
    assert [ax.get_title() for ax in axes] == ["a", "b", "c"]
    assert axes[0].get_xlim() == (-0.5, 59.5)
    assert axes[0].get_ylim() == (39.5, -0.5)
    assert axes[1].get_xlim() == (-0.5, 3999.5)  # shrunk for drawing, not in coordinates
    image = rendered(axes)
    assert image[to_row_column(axes[0], image, 30, 20)].tolist() == [0, 0, 255]
    assert image[to_row_column(axes[1], image, 1000, 500)].tolist() == [0, 0, 0]
    assert image[to_row_column(axes[1], image, 3000, 500)].tolist() == [255, 255, 255]
    assert image[to_row_column(axes[2], image, 30, 20)].tolist() == [255, 255, 255]


def test_matches_end_at_their_points_after_a_resize():
    dark = np.zeros((80, 100), np.uint8)
    axes = images.plot_images([dark, dark])
    points0, points1 = np.array([[20, 20], [30, 60]]), np.array([[80, 20], [70, 60]])
    images.plot_matches(*axes, points0, points1, [True, False], linewidth=2)
    figure = style.figure_of(axes)
    for size in ((6, 3), (9, 5)):
        figure.set_size_inches(*size)
        image = rendered(axes)
        for row_index, name in ((0, palette.INLIER), (1, palette.OUTLIER)):
            start = to_row_column(axes[0], image, *points0[row_index])
            end = to_row_column(axes[1], image, *points1[row_index])
            for t in (0.1, 0.3, 0.7, 0.9):
                row, column = (round(a + t * (b - a)) for a, b in zip(start, end, strict=True))
                assert near(image[row - 2 : row + 3, column - 2 : column + 3], name).any()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "1 inliers",
        "1 outliers",
    ]


def test_heat_maps_and_patch_maps_show_their_values():
    heat = np.zeros((16, 16))
    heat[4, 4], heat[12, 12] = 1.0, -1.0
    _, (ax0, ax1) = style.plt.subplots(1, 2)
    assert maps.plot_heatmap(ax0, heat, limit=2.0, title="heat") is ax0
    image = rendered(ax0)
    assert near(image[to_row_column(ax0, image, 4, 4)][None, None], palette.VERMILION, 8).all()
    assert near(image[to_row_column(ax0, image, 12, 12)][None, None], palette.BLUE, 8).all()
    assert image[to_row_column(ax0, image, 8, 8)].min() > 240

    values = patch_map(Spec(32), (8, 20))
    assert plot_patch_map(ax1, values, (8, 20), title="map") is ax1
    assert ax1.get_ylim()[0] > ax1.get_ylim()[1]  # y down
    image = rendered(ax1)
    bright = image[to_row_column(ax1, image, 10, 20)].sum()
    assert bright > image[to_row_column(ax1, image, 30, 2)].sum() + 200
    constant = plot_patch_map(style.plt.subplots()[1], np.ones((8, 8)))
    assert rendered(constant).any()


def test_explanation_has_a_column_for_every_heat_map():
    patch = PHOTO[100:132, 200:232, 1]
    axes = maps.plot_explanation(explain_patches(patch, patch, Spec(32)), titles=("A", "B"))
    assert axes.shape == (2, 4)
    assert [ax.get_title() for ax in axes[0]] == [
        "patch",
        "polar\n1.00",
        "cart\n1.00",
        "concat\n1.00",
    ]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["A", "B"]


def test_saved_whole_or_not_at_all(tmp_path):
    axes = images.plot_images([PHOTO])
    style.save_plot(tmp_path / "a.png", axes)
    assert cv2.imread(str(tmp_path / "a.png")) is not None
    with pytest.raises(FileNotFoundError, match="nowhere"):
        style.save_plot(tmp_path / "nowhere" / "a.png", axes)
    with pytest.raises(ValueError, match="Format 'nope'"):
        style.save_plot(tmp_path / "a.nope", axes)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
