"""Explain a match: which pixels made two patches alike.

    python demos/explain_match.py --out explanation.png
    python demos/explain_match.py left.jpg right.jpg --match 3

Without photographs, one of scikit-image's and its warp are matched.
"""

import argparse

import cv2
import matplotlib
import numpy as np

matplotlib.use("Agg")

from kd_cv import KDDescriptor, match
from kd_cv.draw.plots import plot_explanation, plot_frame, plot_images, plt, save_plot, style
from kd_cv.explain import explain


def photographs(paths: list[str]) -> list[np.ndarray]:
    """The given two, or a built-in one and its warp."""
    if paths:
        images = [cv2.imread(path) for path in paths]
        for path, image in zip(paths, images, strict=True):
            if image is None:
                raise SystemExit(f"cannot read {path!r} as an image")
        return images
    from skimage import data

    image = data.astronaut()[..., ::-1].copy()
    H = np.array([[0.80, 0.25, 20.0], [-0.20, 0.85, 110.0], [1e-4, 2e-4, 1.0]])
    return [image, cv2.warpPerspective(image, H, (512, 512))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", help="two photographs")
    parser.add_argument("--match", type=int, default=24, help="which inlier, the largest being 0")
    parser.add_argument("--out", default="explanation.png")
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
        figure = plt.figure(figsize=(6.6, 6.2), layout="constrained")
        upper, lower = figure.subfigures(2, 1)
        axes = plot_images(images, ["image 0", "image 1"], axes=upper.subplots(1, 2))
        for ax, keypoint in zip(axes, keypoints, strict=True):
            plot_frame(ax, kd.frames([keypoint]), magnification=kd.settings.side)
        plot_explanation(why, titles=("image 0", "image 1"), figure=lower)
    save_plot(args.out, figure)
    print(f"why they match: {args.out}")


if __name__ == "__main__":
    main()
