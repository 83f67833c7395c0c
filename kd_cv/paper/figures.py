"""The figures of the paper, drawn from the descriptor itself.

Every figure has two halves: a function that draws what it is given (a spec, a projection, some
similarities), and an entry of `FIGURES` that gives it the defaults of `Material`: the shipped
whitening, and pairs of patches from the photographs of scikit-image.

>>> [path.name for path in save_figures(["kernels", "whitening"], "figures")]
['kernels.png', 'whitening.png']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.kernels import PHI, THETA, VonMises, X
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.draw.plots import (
    Figure,
    add_heat_key,
    bare,
    plot_curves,
    plot_eigenvalues,
    plot_heatmap,
    plot_patch,
    plot_patch_map,
    plot_similarities,
    plot_toy_patch,
    plt,
    save_plot,
    style,
)
from kd_cv.evaluate.candidates import KD
from kd_cv.evaluate.curves import robustness_curves
from kd_cv.evaluate.metrics import fpr95
from kd_cv.evaluate.patches import pairs_of_scenes
from kd_cv.evaluate.readers import builtin_scenes
from kd_cv.explain import (
    Array,
    Explanation,
    Pixel,
    explain_patches,
    kernel_map,
    patch_map,
    slices,
)
from kd_cv.feature2d import KDDescriptor
from kd_cv.fit.scenes import Scene
from kd_cv.io.builtin import TEST_PHOTOS
from kd_cv.pictures.palette import BLUE, GRAY, GREEN, ORANGE, PURPLE, VERMILION
from kd_cv.settings import Settings
from kd_cv.whitening import registry as shipped
from kd_cv.whitening.registry import DEFAULT_WEIGHTS
from kd_cv.whitening.whitening import Whitening

DIM = 128
Curve = Sequence[tuple[float, float]]

WHITENED = {"ws": r"$W_S$", "wua": r"$W_{UA}$", "wus": r"$W_{US}$"}
# Kernels of the four combinations of position and angle.
PRODUCTS = {
    ("polar", "absolute"): r"$k_\phi\, k_\rho\, k_\theta$",
    ("polar", "relative"): r"$k_\phi\, k_\rho\, k_{\tilde\theta}$",
    ("cart", "absolute"): r"$k_x\, k_y\, k_\theta$",
    ("cart", "relative"): r"$k_x\, k_y\, k_{\tilde\theta}$",
}


# --------------------------------------------------------------------------------------------------
# What the figures are drawn from


class Pairs(NamedTuple):
    """Frames (M, 4) of two images, row by row of the same point, and the images."""

    image0: NDArray[np.uint8]
    frames0: NDArray[np.float64]
    image1: NDArray[np.uint8]
    frames1: NDArray[np.float64]


@dataclass(frozen=True)
class Material:
    """Where the figures take patches and whitening from.

    patch_size   of all the figures' patches and maps
    weights      whatever KDDescriptor takes
    keypoints    at most, of each view of a photograph
    """

    patch_size: int = 64
    weights: Any = DEFAULT_WEIGHTS
    keypoints: int = 1500

    def settings(self, kernel: str = "concat", variant: str | None = None) -> Settings:
        """A kernel, whitened by a variant or raw."""
        if variant is None:
            return Settings(self.patch_size, kernel, whitening=None)
        return Settings(self.patch_size, kernel, variant, self.whitening(kernel), DIM)

    def spec(self, kernel: str = "concat") -> Spec:
        return self.settings(kernel).spec

    def whitening(self, kernel: str = "concat") -> Whitening:
        """The matrices of a kernel."""
        spec = self.spec(kernel)
        return shipped.resolve(self.weights, kernel, spec.patch_size, spec.dim)

    def kernels(self) -> tuple[str, ...]:
        """Those that there are matrices for; never without "concat"."""
        self.whitening("concat")
        if isinstance(self.weights, Whitening):
            return ("concat",)
        fitted = ["concat"]
        for kernel in ("polar", "cart"):
            with suppress(ValueError):
                self.whitening(kernel)
                fitted.append(kernel)
        return tuple(fitted)

    def projection(self, variant: str, kernel: str = "concat") -> Projection:
        projection = self.settings(kernel, variant).projection
        assert projection is not None
        return projection

    @property
    def source(self) -> str:
        """Which whitening it is, in words."""
        if isinstance(self.weights, str) and self.weights in shipped.names():
            return f'whitening: the shipped "{self.weights}"'
        return "whitening: as given"

    @cached_property
    def scenes(self) -> list[Scene]:
        """Photographs that the fit did not see, and their warps, the keypoints a little off."""
        return builtin_scenes(TEST_PHOTOS, "easy", 4, self.keypoints)

    @cached_property
    def pairs(self) -> tuple[Pairs, ...]:
        """The same keypoints of each photograph and of each of its warps."""
        pairs = []
        for scene in self.scenes:
            for number, view in enumerate(scene.views[1:], start=1):
                first, rows = scene.views[0], scene.pairs(0, number)
                frames = first.frames[rows[:, 0]], view.frames[rows[:, 1]]
                pairs.append(Pairs(first.load(), frames[0], view.load(), frames[1]))
        return tuple(pairs)

    def descriptors(self, side: int, kernel: str = "concat", variant: str | None = None) -> Array:
        """Descriptors (M, D) of one side of the pairs, 0 or 1."""
        settings = self.settings(kernel, variant)
        rows = [
            settings.rows((pairs.image0, pairs.image1)[side], (pairs.frames0, pairs.frames1)[side])
            for pairs in self.pairs
        ]
        return np.concatenate(rows).astype(np.float64)


def similarities(d0: Array, d1: Array, seed: int = 0) -> tuple[Array, Array]:
    """Cosines of matching rows, (M,), and of as many that do not match, (M,)."""
    if len(d0) < 2:
        raise ValueError(f"non-matching pairs need 2 or more rows, got {len(d0)}")
    order = np.random.default_rng(seed).permutation(len(d0))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # a cycle: no row meets its own partner
    return (d0 * d1).sum(axis=1), (d0 * d1[other]).sum(axis=1)


# --------------------------------------------------------------------------------------------------
# The figures


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
def draw_parametrizations(patch_size: int = 64, turn: float = np.pi / 8) -> Figure:
    """Figure 2: patch maps of the four combinations of position and angle, Q turned or not."""
    pixel = _pixel(patch_size, -0.40, 0.32)
    figure, axes = plt.subplots(2, 6, figsize=(7.6, 2.9), layout="compressed")
    for row, (theta, name) in enumerate(((0.0, "0"), (turn, "π/8" if turn == np.pi / 8 else "Δθ"))):
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
    theta_p: float, theta_q: float, phi_p: float, count: int = 2001
) -> tuple[Array, Array, Array, Array]:
    """phi_q, and k_phi, k_theta_rel and their product for pixels q as far out as p; maxima of 1."""
    phi = np.linspace(phi_p - np.pi, phi_p + np.pi, count)
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
    ax.set(xlim=(-1.0, 0.25), ylim=(0.95, -0.3), aspect="equal", title="same radius")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(visible=True, linewidth=0.4, color=GRAY)


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


Column = tuple[str, Spec, Projection | None]  # title, and what makes the patch map


@style()
def draw_whitening(columns: Sequence[Column], note: str = "") -> Figure:
    """Figure 5: patch maps for several whitenings (columns) and gradient angles (rows)."""
    angles = ("0", "π/4", "π/2", "3π/4", "π")
    figure, axes = plt.subplots(
        5, len(columns), figsize=(1.22 * len(columns) + 0.6, 6.4), layout="compressed"
    )
    for column, (title, spec, projection) in enumerate(columns):
        pixel = _pixel(spec.patch_size, -0.4, 0.4)
        for row, name in enumerate(angles):
            theta = row * np.pi / 4
            values = patch_map(spec, pixel, theta, theta, projection)
            plot_patch_map(axes[row, column], values, pixel)
            if column == 0:
                axes[row, 0].set_ylabel(rf"$p_\theta = q_\theta =$ {name}")
        axes[0, column].set_title(title)
    return _noted(figure, note)


@style()
def draw_slices(columns: Sequence[Column], note: str = "") -> Figure:
    """Figure 6: patch maps along the row and the column of the pixel, each divided by its peak."""
    looks = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (VERMILION, ":"), (PURPLE, "-"))
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.5), width_ratios=[0.75, 1, 1])
    maps = []
    for _, spec, projection in columns:
        pixel = _pixel(spec.patch_size, -0.4, 0.4)
        maps.append(patch_map(spec, pixel, 0.0, 0.0, projection))
    plot_patch_map(axes[0], maps[0], pixel, title=columns[0][0])
    axes[0].axhline(pixel[1], color="white", linewidth=0.8, linestyle="--")
    axes[0].axvline(pixel[0], color="white", linewidth=0.8, linestyle="--")
    for (title, _, _), values, (color, dashes) in zip(columns, maps, looks, strict=False):
        for ax, line in zip(axes[1:], slices(values, pixel), strict=True):
            ax.plot(line / values.max(), dashes, color=color, label=title)
    for ax, at, attribute in zip(axes[1:], pixel, ("x", "y"), strict=True):
        ax.axvline(at, color=GRAY, linewidth=0.6, linestyle=":")
        ax.axhline(0, color=GRAY, linewidth=0.5)
        other = "y" if attribute == "x" else "x"
        ax.set(xlabel=f"$q_{attribute}$", title=f"along ${attribute}$  ($q_{other} = p_{other}$)")
        ax.set(xlim=(0, len(maps[0]) - 1))
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
    titles = [_heat_title(name) for name in names]
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


def _heat_title(name: str) -> str:
    return name if name in KERNELS else "concat + " + WHITENED["ws"]


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
def draw_robustness(
    turns: Mapping[str, Curve], shifts: Mapping[str, Curve], note: str = ""
) -> Figure:
    """FPR95 when one patch of each pair is turned or shifted: label -> points (x, FPR95)."""
    figure = plt.figure(figsize=(6.4, 2.4))
    labels = "turn of one patch (degrees)", "shift of one patch (pixels)"
    plot_curves(figure, dict(zip(labels, (turns, shifts), strict=True)), "FPR95 (%)")
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


# --------------------------------------------------------------------------------------------------
# The registry


def whitening_columns(material: Material) -> list[Column]:
    """The columns of figure 5."""
    concat = material.spec()
    columns: list[Column] = [("concat", concat, None)]
    for kernel, variant in (
        ("polar", "ws"), ("cart", "ws"), ("concat", "ws"), ("concat", "wua"), ("concat", "wus"),
    ):  # fmt: skip
        if kernel in material.kernels():
            title = f"{kernel} + {WHITENED[variant]}"
            columns.append((title, material.spec(kernel), material.projection(variant, kernel)))
    return columns


def sample_explanations(material: Material, count: int = 3) -> list[Explanation]:
    """Heat maps of large keypoints whose patches lie inside the photographs."""
    spec, projection = material.spec(), material.projection("ws")
    explanations = []
    chosen = material.pairs[:: max(1, len(material.pairs) // count)][:count]
    for number, pairs in enumerate(chosen):
        inside = _inside(pairs.frames0, pairs.image0) & _inside(pairs.frames1, pairs.image1)
        rows = np.flatnonzero(inside)
        if not len(rows):
            continue
        row = rows[np.argsort(-pairs.frames0[rows, 2], kind="stable")][[6 * number % len(rows)]]
        sides = (pairs.image0, pairs.frames0[row]), (pairs.image1, pairs.frames1[row])
        patches = [extract_patches(*side, spec.patch_size, MAGNIFICATION)[0] for side in sides]
        explanations.append(explain_patches(patches[0], patches[1], spec, projection))
    return explanations


def _inside(frames: NDArray[np.float64], image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Frames whose patch, at any angle, lies in the image."""
    reach = MAGNIFICATION * frames[:, 2:3] / np.sqrt(2)
    size = np.array(image.shape[::-1])
    return ((frames[:, :2] >= reach) & (frames[:, :2] <= size - 1 - reach)).all(axis=1)


def histogram_groups(material: Material) -> dict[str, tuple[Array, Array]]:
    """Similarities of pairs for "polar", "cart", "concat" and that with W_S."""
    kinds = (("polar", None), ("cart", None), ("concat", None), ("concat", "ws"))
    groups = {}
    for kernel, variant in kinds:
        d0, d1 = (material.descriptors(side, kernel, variant) for side in (0, 1))
        title = kernel + (f" + {WHITENED[variant]}" if variant else "")
        groups[title] = similarities(d0, d1)
    return groups


def robustness(
    material: Material, turns: Sequence[float] = (), shifts: Sequence[float] = ()
) -> dict[str, Curve]:
    """Label -> (turn or shift, FPR95) for "polar", "cart" and "concat" with W_S."""
    labels = {kernel: f"{kernel} + {WHITENED['ws']}" for kernel in material.kernels()}
    candidates = [
        KD(
            KDDescriptor(
                patch_size=material.patch_size, kernel=kernel, whitening="ws",
                weights=material.whitening(kernel), dim=DIM,
            ),
            label,
        )
        for kernel, label in labels.items()
    ]  # fmt: skip
    labelled = pairs_of_scenes(material.scenes, material.patch_size)
    curves = robustness_curves(labelled, candidates, turns=turns, shifts=shifts)
    return dict(zip(labels.values(), curves.values(), strict=True))


def _slices_columns(material: Material) -> list[Column]:
    columns = {
        title: (title, spec, projection) for title, spec, projection in whitening_columns(material)
    }
    order = ("concat", *(f"concat + {WHITENED[variant]}" for variant in ("wua", "wus", "ws")))
    return [columns[title] for title in order]


#: Name of a figure -> what draws it.
FIGURES: dict[str, Callable[[Material], Figure]] = {
    "kernels": lambda m: draw_kernels(),
    "parametrizations": lambda m: draw_parametrizations(m.patch_size),
    "rotation": lambda m: draw_rotation(m.patch_size),
    "combination": lambda m: draw_combination(m.patch_size),
    "whitening": lambda m: draw_whitening(whitening_columns(m), m.source),
    "slices": lambda m: draw_slices(_slices_columns(m), m.source),
    "heat_maps": lambda m: draw_heat_maps(
        sample_explanations(m),
        f"below each map: its sum, the cosine of the descriptors; {m.source}",
    ),
    "histograms": lambda m: draw_histograms(histogram_groups(m), m.source),
    "eigenvalues": lambda m: draw_eigenvalues(m.whitening(), m.source),
    "robustness": lambda m: draw_robustness(
        robustness(m, turns=range(0, 31, 5)),
        robustness(m, shifts=range(0, 13, 2)),
        m.source,
    ),
}


def check_names(names: Iterable[str]) -> list[str]:
    """The names of figures; all of them if none is given."""
    chosen = list(names) or list(FIGURES)
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        raise ValueError(f"unknown figures {unknown}: expected some of {list(FIGURES)}")
    return chosen


def save_figures(
    names: Iterable[str],
    folder: str | os.PathLike[str],
    material: Material | None = None,
    done: Callable[[str, Path], None] | None = None,
) -> list[Path]:
    """Draw figures into NAME.png files of a folder, which is made if it is not there.

    No name means all of them. done(name, path) is called after each.
    """
    chosen, target = check_names(names), Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{str(target)!r} is a file, expected a folder for the figures")
    target.mkdir(parents=True, exist_ok=True)
    material = material or Material()
    paths = []
    for name in chosen:
        figure = FIGURES[name](material)
        try:
            save_plot(target / f"{name}.png", figure)
        finally:
            plt.close(figure)
        paths.append(target / f"{name}.png")
        if done:
            done(name, paths[-1])
    return paths
