"""The figures of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from experiments.paper.data import WHITENED, Columns
from experiments.paper.patch_maps import Pixel, patch_map, plot_patch_map, row_column
from experiments.paper.plots import plot_curves, plot_eigenvalues, plot_similarities
from experiments.protocols.metrics import fpr95
from experiments.protocols.patch_curves import Curves
from kd_cv.descriptor.kernels import PHI, RHO, THETA, Array, Grid, VonMises, X, Y
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.explain import Explanation
from kd_cv.viz.maps import add_heat_key, plot_heatmap, plot_patch
from kd_cv.viz.palette import BLUE, GRAY, GREEN, ORANGE, PURPLE, VERMILION
from kd_cv.viz.style import Axes, Figure, bare, framed, plt, style
from kd_cv.whitening.whitening import Whitening

Position = Literal["polar", "cart"]
Angle = Literal["relative", "absolute"]

# Kernels of the four combinations of position and angle.
PRODUCTS: dict[tuple[Position, Angle], str] = {
    ("polar", "absolute"): r"$k_\phi\, k_\rho\, k_\theta$",
    ("polar", "relative"): r"$k_\phi\, k_\rho\, k_{\tilde\theta}$",
    ("cart", "absolute"): r"$k_x\, k_y\, k_\theta$",
    ("cart", "relative"): r"$k_x\, k_y\, k_{\tilde\theta}$",
}


@style()
def draw_kernels() -> Figure:
    """Figure 1: the kernel of each attribute, exact and after N frequencies."""
    kinds: tuple[tuple[VonMises, str, str], ...] = (
        (THETA, r"$\Delta\theta$ or $\Delta\tilde\theta$", r"$k_\theta$, $k_{\tilde\theta}$"),
        (PHI, r"$\Delta\phi$ or $\Delta\rho$", r"$k_\phi$, $k_\rho$"),
        (X, r"$\Delta x$ or $\Delta y$", r"$k_x$, $k_y$"),
    )
    figure, axes = plt.subplots(1, 3, figsize=(7.0, 2.1), sharey=True)
    delta = np.linspace(0, np.pi, 400)
    for ax, (kernel, attribute, name) in zip(axes, kinds, strict=True):
        ax.axhline(0, color=GRAY, linewidth=0.5)
        ax.plot(delta, kernel.exact(delta), "--", color=ORANGE, linewidth=1.1, label="von Mises")
        label = f"{kernel.N} frequenc" + ("y" if kernel.N == 1 else "ies")
        ax.plot(delta, kernel(delta), color=BLUE, label=label)
        ax.set(title=rf"$\kappa = {kernel.kappa:g},\ N = {kernel.N}$", xlabel=attribute)
        ax.set(ylabel=name, xlim=(0, np.pi), yticks=[0, 0.5, 1])
        ax.set_xticks(np.linspace(0, np.pi, 5), ["0", "π/4", "π/2", "3π/4", "π"])
        ax.legend()
    return figure


@style()
def draw_parametrizations(patch_size: int = 64) -> Figure:
    """Figure 2: patch maps of the four combinations of position and angle, Q turned or not."""
    pixel = _pixel(patch_size, -0.40, 0.32)
    figure, axes = plt.subplots(2, 6, figsize=(7.6, 2.9), layout="compressed")
    for row, (theta, name) in enumerate(((0.0, "0"), (np.pi / 8, "π/8"))):
        plot_toy_patch(axes[row, 0], patch_size, 0.0, pixel=pixel, color=BLUE)
        plot_toy_patch(axes[row, 1], patch_size, theta)
        for ax, (position, angle) in zip(axes[row, 2:], PRODUCTS, strict=True):
            values = kernel_map(patch_size, pixel, 0.0, theta, position=position, angle=angle)
            plot_patch_map(ax, values, pixel)
        axes[row, 0].set_xlabel(r"$p_\theta = 0$")
        axes[row, 1].set_xlabel(rf"$q_\theta =$ {name}")
    titles = ("pixel $p$", "patch $Q$", *PRODUCTS.values())
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title)
    return figure


@style()
def draw_rotation(patch_size: int = 64) -> Figure:
    """Figure 3: why the polar map of a turned patch peaks away from the pixel."""
    theta_p, theta_q = np.pi / 4, np.pi / 2
    phi_p, rho = 3 * np.pi / 4, 0.68
    pixel = _pixel(patch_size, rho * np.cos(phi_p), rho * np.sin(phi_p))
    figure, axes = plt.subplots(
        1, 5, figsize=(8.3, 1.95), layout="compressed", width_ratios=[1, 1, 1, 1, 1.35]
    )
    plot_toy_patch(axes[0], patch_size, theta_p, pixel=pixel, color=BLUE, title="pixel $p$")
    axes[0].set_xlabel(r"$p_\theta$ = π/4")
    plot_toy_patch(axes[1], patch_size, theta_q, title="patch $Q$")
    axes[1].set_xlabel(r"$q_\theta$ = π/2")
    plot_patch_map(
        axes[2],
        kernel_map(patch_size, pixel, theta_p, theta_q),
        pixel,
        title=PRODUCTS["polar", "relative"],
    )
    phi, position, angle, product = rotation_curves(theta_p, theta_q, phi_p)
    peaks = [float(phi[values.argmax()]) for values in (position, product, angle)]
    _draw_arc(axes[3], rho, phi_p, theta_p, theta_q, peaks)
    ax = axes[4]
    curves = (
        (angle, VERMILION, "--", r"$k_{\tilde\theta}$"),
        (position, GREEN, "-.", r"$k_\phi$"),
        (product, BLUE, "-", r"$k_{\tilde\theta}\, k_\phi$"),
    )
    for values, color, dashes, label in curves:
        ax.plot(phi, values, dashes, color=color, label=label)
        peak = values.argmax()
        ax.vlines(phi[peak], 0, values[peak], color=color, linewidth=0.8, linestyle=":")
    ax.set_xticks(peaks, [f"$q^{{({i})}}$" for i in (1, 2, 3)])
    ax.set(ylim=(0, 1.05), yticks=[0, 1], xlim=(phi_p - 0.25, np.pi + 0.25), box_aspect=0.74)
    ax.set(xlabel=r"$q_\phi$ on the circle", title="along the circle")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.2)
    return figure


def rotation_curves(
    theta_p: float, theta_q: float, phi_p: float
) -> tuple[Array, Array, Array, Array]:
    """phi_q, and k_phi, k_theta_rel and their product for pixels q as far out as p; maxima of 1."""
    phi = np.linspace(phi_p - np.pi, phi_p + np.pi, 2001)
    position = PHI(phi - phi_p) / PHI.gamma.sum()
    angle = THETA((theta_q - phi) - (theta_p - phi_p)) / THETA.gamma.sum()
    return phi, position, angle, position * angle


def _draw_arc(
    ax: Any, rho: float, phi_p: float, theta_p: float, theta_q: float, peaks: Sequence[float]
) -> None:
    """Pixel p and three pixels of Q on the same circle."""
    arc = np.linspace(min(peaks), max(peaks), 50)
    ax.plot(rho * np.cos(arc), rho * np.sin(arc), "--", color=GRAY, linewidth=0.8)
    settings: dict[str, Any] = {
        "angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.02, "headwidth": 4,
    }  # fmt: skip
    for i, phi in enumerate(peaks, start=1):
        x, y = rho * np.cos(phi), rho * np.sin(phi)
        ax.plot([0, x], [0, y], color=GRAY, linewidth=0.6)
        ax.quiver(x, y, 0.2 * np.cos(theta_q), 0.2 * np.sin(theta_q), color=VERMILION, **settings)
        ax.text(x - 0.05, y - 0.02, f"$q^{{({i})}}$", ha="right", va="center", fontsize=7)
    x, y = rho * np.cos(phi_p), rho * np.sin(phi_p)
    ax.quiver(x, y, 0.2 * np.cos(theta_p), 0.2 * np.sin(theta_p), color=BLUE, **settings)
    ax.plot(0, 0, "o", color=GRAY, markersize=2.5)
    ax.text(0, -0.06, "centre", fontsize=7, color=GRAY, ha="center")
    framed(ax).set(xlim=(-1.0, 0.25), ylim=(0.95, -0.3), aspect="equal", title="same radius")


@style()
def draw_combination(patch_size: int = 64) -> Figure:
    """Figure 4: polar, Cartesian and combined patch maps of three pixels."""
    pixels = [_pixel(patch_size, x, y) for x, y in ((0.0, 0.0), (-0.4, 0.4), (-0.7, 0.0))]
    figure, axes = plt.subplots(3, 3, figsize=(4.2, 4.4), layout="compressed")
    polar, cart = PRODUCTS["polar", "relative"], PRODUCTS["cart", "absolute"]
    for column, (kernel, title) in enumerate(
        (("polar", polar), ("cart", cart), ("concat", f"{polar} + {cart}"))
    ):
        for row, pixel in enumerate(pixels):
            plot_patch_map(axes[row, column], patch_map(Spec(patch_size, kernel), pixel), pixel)
        axes[0, column].set_title(title)
    return figure


@style()
def draw_whitening(columns: Columns, note: str = "") -> Figure:
    """Figure 5: patch maps for several whitenings (columns) and gradient angles (rows)."""
    angles = ("0", "π/4", "π/2", "3π/4", "π")
    figure, axes = plt.subplots(
        5, len(columns), figsize=(1.22 * len(columns) + 0.6, 6.4), layout="compressed"
    )
    for column, (title, settings) in enumerate(columns.items()):
        pixel = _pixel(settings.patch_size, -0.4, 0.4)
        for row, name in enumerate(angles):
            theta = row * np.pi / 4
            values = patch_map(settings.spec, pixel, theta, theta, settings.projection)
            plot_patch_map(axes[row, column], values, pixel)
            if column == 0:
                axes[row, 0].set_ylabel(rf"$p_\theta = q_\theta =$ {name}")
        axes[0, column].set_title(title)
    return _noted(figure, note)


@style()
def draw_slices(columns: Columns, note: str = "") -> Figure:
    """Figure 6: patch maps along the row and the column of the pixel, each divided by its peak."""
    looks = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (VERMILION, ":"), (PURPLE, "-"))
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.5), width_ratios=[0.75, 1, 1])
    pixel = _pixel(next(iter(columns.values())).patch_size, -0.4, 0.4)
    maps = {
        title: patch_map(settings.spec, pixel, 0.0, 0.0, settings.projection)
        for title, settings in columns.items()
    }
    title, values = next(iter(maps.items()))
    plot_patch_map(axes[0], values, pixel, title=title)
    axes[0].axhline(pixel[1], color="white", linewidth=0.8, linestyle="--")
    axes[0].axvline(pixel[0], color="white", linewidth=0.8, linestyle="--")
    for (title, values), (color, dashes) in zip(maps.items(), looks, strict=False):
        for ax, line in zip(axes[1:], (values[pixel[1]], values[:, pixel[0]]), strict=True):
            ax.plot(line / values.max(), dashes, color=color, label=title)
    for ax, at, attribute in zip(axes[1:], pixel, ("x", "y"), strict=True):
        ax.axvline(at, color=GRAY, linewidth=0.6, linestyle=":")
        ax.axhline(0, color=GRAY, linewidth=0.5)
        other = "y" if attribute == "x" else "x"
        ax.set(xlabel=f"$q_{attribute}$", title=f"along ${attribute}$  ($q_{other} = p_{other}$)")
        ax.set(xlim=(0, len(values) - 1))
    axes[1].set_ylabel("$M(p, q)$ / its maximum")
    low = min(ax.get_ylim()[0] for ax in axes[1:])
    for ax in axes[1:]:
        ax.set_ylim(low, 1.05)
    handles, names = axes[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=len(names))
    return _noted(figure, note)


@style()
def draw_heat_maps(explanations: Sequence[Explanation], note: str = "") -> Figure:
    """Figure 7: pairs of patches (rows) and what each of their pixels adds to the similarity."""
    names = list(explanations[0].similarities)
    width = 1 + len(names)
    figure, axes = plt.subplots(
        len(explanations), 2 * width + 1,
        figsize=(0.94 * (2 * width + 0.25) + 0.7, 1.0 * len(explanations) + 0.6),
        width_ratios=[1] * width + [0.12] + [1] * width, layout="compressed", squeeze=False,
    )  # fmt: skip
    titles = [name if name in KERNELS else f"concat + {WHITENED['ws']}" for name in names]
    for row, why in enumerate(explanations):
        bare(axes[row, width])
        sides = ((why.patch0, why.heat0, 0), (why.patch1, why.heat1, width + 1))
        for patch, heats, first in sides:
            plot_patch(axes[row, first], patch)
            for column, name in enumerate(names, start=first + 1):
                plot_heatmap(axes[row, column], heats[name], limit=why.limit(name))
                axes[row, column].set_xlabel(f"{why.similarities[name]:.2f}", labelpad=2)
    for first, title in ((0, "patch $P$"), (width + 1, "patch $Q$")):
        for ax, text in zip(axes[0, first:], [title, *titles], strict=False):
            ax.set_title(text)
    add_heat_key(figure, axes)
    return _noted(figure, note)


@style()
def draw_histograms(groups: Mapping[str, tuple[Array, Array]], note: str = "") -> Figure:
    """Similarities of matching and non-matching pairs, one panel for each descriptor."""
    figure, axes = plt.subplots(1, len(groups), figsize=(2.0 * len(groups), 2.1))
    for ax, (title, (matching, non_matching)) in zip(np.ravel(axes), groups.items(), strict=True):
        plot_similarities(ax, matching, non_matching, title=title)
        labels = np.repeat([True, False], [len(matching), len(non_matching)])
        error = fpr95(-np.concatenate([matching, non_matching]), labels)
        ax.set_xlabel(f"similarity\nFPR95 {error:.1f} %")
    handles, names = np.ravel(axes)[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2)
    return _noted(figure, note)


@style()
def draw_eigenvalues(whitening: Whitening, note: str = "") -> Figure:
    """The eigenvalues that each unsupervised whitening divides by."""
    figure, ax = plt.subplots(figsize=(4.2, 2.7))
    plot_eigenvalues(ax, whitening.lam, t=whitening.t, beta_index=whitening.beta_index)
    return _noted(figure, note)


@style()
def draw_robustness(turns: Curves, shifts: Curves, note: str = "") -> Figure:
    """FPR95 when one patch of each pair is turned or shifted: label -> points (x, FPR95)."""
    figure = plt.figure(figsize=(6.4, 2.4))
    panels = {"turn of one patch (degrees)": turns, "shift of one patch (pixels)": shifts}
    plot_curves(figure, panels, "FPR95 (%)")
    return _noted(figure, note)


def _pixel(patch_size: int, x: float, y: float) -> Pixel:
    """The pixel nearest to a position from -1 to 1."""
    column, row = (round((value + 1) / 2 * (patch_size - 1)) for value in (x, y))
    return column, row


def _noted(figure: Figure, note: str) -> Figure:
    """A line below the figure that says what it was made from."""
    if note:
        figure.supxlabel(note, fontsize=6.5, color=GRAY, x=0.995, ha="right")
    return figure


def kernel_map(
    patch_size: int,
    pixel: Pixel,
    theta_p: float = 0.0,
    theta_q: float = 0.0,
    *,
    position: Position = "polar",
    angle: Angle = "relative",
) -> Array:
    """The product of the kernels of position and angle, as a map over q: (P, P).

    The polar, relative map is the one of the descriptor's polar part, the cart, absolute map that
    of its Cartesian part; the other two are what the paper compares them with.
    """
    index = row_column(pixel, patch_size)
    grid = Grid.of_size(patch_size)

    def delta(values: Array) -> Array:
        return values - values[index]

    if position == "polar":
        k = PHI(delta(grid.phi)) * RHO(delta(grid.rho_angle))
    else:
        k = X(delta(grid.x_angle)) * Y(delta(grid.y_angle))
    turn = delta(grid.phi) if angle == "relative" else 0.0
    return k * THETA(np.full_like(grid.phi, theta_q - theta_p) - turn)


@style()
def plot_toy_patch(
    ax: Axes,
    patch_size: int,
    theta: float,
    *,
    pixel: Pixel | None = None,
    color: str = VERMILION,
    title: str | None = None,
) -> Axes:
    """A patch of constant gradient angle as arrows, or only its one pixel (x, y)."""
    if pixel is None:
        axis = (np.arange(4) + 0.5) * patch_size / 4 - 0.5
        x, y = (values.ravel() for values in np.meshgrid(axis, axis))
    else:
        x, y = (np.array([value], np.float64) for value in pixel)
    length = 0.18 * patch_size
    dx, dy = np.full(len(x), length * np.cos(theta)), np.full(len(x), length * np.sin(theta))
    ax.quiver(
        x, y, dx, dy, color=color, angles="xy", scale_units="xy", scale=1,
        pivot="mid" if pixel is None else "tail", width=0.018, headwidth=4, headlength=4.5,
        headaxislength=4,
    )  # fmt: skip
    if pixel is not None:
        ax.plot(x, y, "o", color=color, markersize=3)
    ax.set(xlim=(-0.5, patch_size - 0.5), ylim=(patch_size - 0.5, -0.5), aspect="equal")
    framed(ax).set_title(title or "")
    return ax
