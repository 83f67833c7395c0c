"""Every figure of the paper is drawn, from the descriptor, and says what the paper says."""

import cv2
import numpy as np
import pytest

pytestmark = pytest.mark.slow

data = pytest.importorskip("skimage.data")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from experiments.paper import drawings  # noqa: E402
from experiments.paper.data import FigureData  # noqa: E402
from experiments.paper.drawings import kernel_map  # noqa: E402
from experiments.paper.figures import FIGURES, save_figures  # noqa: E402
from experiments.paper.patch_maps import patch_map  # noqa: E402
from kd_cv.descriptor.kernels import THETA  # noqa: E402


@pytest.fixture(scope="module")
def figure_data() -> FigureData:
    """Small patches, and few of them."""
    return FigureData(patch_size=32, keypoints=300)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_with_nothing_cut_off(name, figure_data, tmp_path):
    matplotlib.pyplot.close("all")  # those of other tests
    (path,) = save_figures([name], tmp_path / "new", figure_data)
    assert path == tmp_path / "new" / f"{name}.png"
    image = cv2.imread(str(path))
    assert min(image.shape[:2]) > 250
    border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    assert (border == 255).all(), "something touches the edge"
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 20
    assert not matplotlib.pyplot.get_fignums()


# ------------------------------------------------------------------- what the paper says of them


def test_rotation_moves_the_peak_between_the_two_kernels():
    """Figure 3: k_theta_rel peaks at q3, k_phi at q1 = p, their product at q2 in between."""
    phi, position, angle, product = drawings.rotation_curves(np.pi / 4, np.pi / 2, 3 * np.pi / 4)
    q1, q2, q3 = (phi[values.argmax()] for values in (position, product, angle))
    assert q1 == pytest.approx(3 * np.pi / 4, abs=0.01)
    assert q3 == pytest.approx(np.pi, abs=0.01)
    assert q3 - q2 == pytest.approx(0.2796, abs=0.02)  # as the paper draws it
    # and the patch map agrees: it peaks on the side of q3
    values = kernel_map(64, (16, 47), np.pi / 4, np.pi / 2)
    row, column = np.unravel_index(values.argmax(), values.shape)
    peak = np.arctan2(row - 31.5, column - 31.5)
    assert 3 * np.pi / 4 + 0.2 < peak < np.pi


def test_cartesian_map_of_a_turned_patch_stays_at_the_pixel():
    """Figure 2: with absolute angles a turn only lowers the map."""
    pixel = (19, 42)
    straight, turned = (
        kernel_map(64, pixel, 0.0, theta, position="cart", angle="absolute")
        for theta in (0.0, np.pi / 8)
    )
    drop = THETA(np.array(np.pi / 8)) / THETA(np.array(0.0))
    np.testing.assert_allclose(turned, drop * straight, atol=1e-12)
    assert np.unravel_index(straight.argmax(), straight.shape) == (42, 19)


def test_whitening_breaks_shift_invariance(figure_data):
    """Figure 5: raw maps are the same for all angles, whitened maps are not."""
    pixel = (10, 20)
    for title, of_column in figure_data.whitening_columns().items():
        spec, projection = of_column.spec, of_column.projection
        maps = [patch_map(spec, pixel, t, t, projection) for t in (0.0, np.pi / 2)]
        same = np.allclose(*maps, atol=1e-9)
        assert same == (projection is None), title


def test_whitening_separates_the_pairs(figure_data):
    """Similarity histograms: W_S moves the non-matching pairs to 0."""
    groups = figure_data.similarities()
    means = {title: (m.mean(), n.mean()) for title, (m, n) in groups.items()}
    whitened = means.pop(r"concat + $W_S$")
    assert abs(whitened[1]) < 0.1
    assert all(non_matching > 0.4 for _, non_matching in means.values())
    assert whitened[0] - whitened[1] > max(m - n for m, n in means.values())


def test_polar_stands_turns_and_cartesian_stands_shifts(figure_data):
    turned, shifted = figure_data.robustness(turns=[0, 30], shifts=[0, 6])
    error = {
        kind: {name.split()[0]: points[-1][1] for name, points in curves.items()}
        for kind, curves in (("turn", turned), ("shift", shifted))
    }
    assert error["turn"]["polar"] < error["turn"]["cart"]
    assert error["shift"]["cart"] < error["shift"]["polar"]
