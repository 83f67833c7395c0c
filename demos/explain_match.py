"""Explain a match: which pixels made two patches alike.

    python demos/explain_match.py --out explanation.png
    python demos/explain_match.py left.jpg right.jpg --match 3

Without photographs, the two of a motorcycle that come with scikit-image are matched.
"""

import argparse

import cv2
import numpy as np

try:
    import matplotlib
except ImportError:
    raise SystemExit("this demo needs matplotlib: pip install kd-cv[cli]") from None
matplotlib.use("Agg")

from kd_cv import KDDescriptor, match
from kd_cv.explain import explain
from kd_cv.io.files import utf8
from kd_cv.viz.images import plot_frame, plot_images
from kd_cv.viz.maps import plot_explanation
from kd_cv.viz.style import plt, save_plot, style


def photographs(paths: list[str]) -> list[np.ndarray]:
    """The given two, or a stereo pair."""
    if paths:
        images = [cv2.imread(path) for path in paths]
        for path, image in zip(paths, images, strict=True):
            if image is None:
                raise SystemExit(f"cannot read {path!r} as an image")
        return images
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    return [image[..., ::-1].copy() for image in data.stereo_motorcycle()[:2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=utf8, nargs="*", help="two photographs")
    parser.add_argument("--match", type=int, default=24, help="which inlier, the largest being 0")
    parser.add_argument("--out", type=utf8, default="explanation.png")
    args = parser.parse_args()
    if len(args.images) not in (0, 2):
        parser.error(f"expected two photographs or none, got {len(args.images)}")

    images = photographs(args.images)
    kd = KDDescriptor(patch_size=64)
    result = match(*images, kd)
    inliers = result.matches[result.inliers]
    if not 0 <= args.match < len(inliers):
        parser.error(f"--match must be from 0 to {len(inliers) - 1}, got {args.match}")
    sizes = [result.keypoints0[i].size for i, _ in inliers]
    i, j = inliers[np.argsort(sizes)[::-1][args.match]]
    keypoints = result.keypoints0[i], result.keypoints1[j]

    why = explain(images[0], keypoints[0], images[1], keypoints[1], kd)
    print(f"similarity {why.similarity:.3f}:", end=" ")
    print(", ".join(f"{part} {share:+.3f}" for part, share in why.shares.items()))

    with style():
        figure = plt.figure(figsize=(6.6, 5.4), layout="constrained")
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.3))
        axes = plot_images(images, ["image 0", "image 1"], axes=upper.subplots(1, 2))
        for ax, keypoint in zip(axes, keypoints, strict=True):
            plot_frame(ax, kd.frames([keypoint]), magnification=kd.settings.side)
        plot_explanation(why, titles=("image 0", "image 1"), figure=lower)
    save_plot(args.out, figure)
    print(f"why they match: {args.out}")


if __name__ == "__main__":
    main()
