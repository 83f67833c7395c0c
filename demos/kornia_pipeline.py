"""From two images to a homography without leaving torch.

    python demos/kornia_pipeline.py --out kornia.png
    python demos/kornia_pipeline.py left.jpg right.jpg --device cuda

Without photographs, one of scikit-image's and its warp are matched.
"""

import argparse

import cv2
import kornia
import matplotlib
import torch
from kornia.feature import DescriptorMatcher, LocalFeatureMatcher

matplotlib.use("Agg")

from kd_cv import KDFeature
from kd_cv.draw.plots import plot_images, plot_matches, save_plot, style

H_0to1 = torch.tensor([[[0.80, 0.25, 20.0], [-0.20, 0.85, 110.0], [1e-4, 2e-4, 1.0]]])


def photographs(paths: list[str]) -> list[torch.Tensor]:
    """The given two, or a built-in one and its warp: (1, 3, H, W), RGB in 0..1."""
    if paths:
        arrays = [cv2.imread(path) for path in paths]
        for path, array in zip(paths, arrays, strict=True):
            if array is None:
                raise SystemExit(f"cannot read {path!r} as an image")
        images = [kornia.image.image_to_tensor(array, keepdim=False) / 255 for array in arrays]
        return [kornia.color.bgr_to_rgb(image) for image in images]
    from skimage import data

    image = kornia.image.image_to_tensor(data.astronaut(), keepdim=False) / 255
    return [image, kornia.geometry.warp_perspective(image, H_0to1, image.shape[-2:])]


def as_bgr(image: torch.Tensor):
    return kornia.image.tensor_to_image((kornia.color.rgb_to_bgr(image) * 255).byte())


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", help="two photographs")
    parser.add_argument("--features", type=int, default=1000, help="of each image")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", default="kornia.png")
    args = parser.parse_args()
    if len(args.images) not in (0, 2):
        parser.error(f"expected two photographs or none, got {len(args.images)}")

    image0, image1 = (image.to(args.device) for image in photographs(args.images))
    matcher = LocalFeatureMatcher(KDFeature(args.features), DescriptorMatcher("smnn", 0.9))
    found = matcher.to(args.device)({"image0": image0, "image1": image1})
    points0, points1 = found["keypoints0"], found["keypoints1"]
    if len(points0) < 8:
        raise SystemExit(f"only {len(points0)} matches: the photographs have little in common")
    torch.manual_seed(0)
    H, inliers = kornia.geometry.RANSAC("homography", inl_th=2.0)(points0, points1)
    print(f"{len(points0)} matches, {int(inliers.sum())} inliers; H_0to1 =\n{H.cpu().numpy()}")

    with style():
        axes = plot_images([as_bgr(image0), as_bgr(image1)], ["KDFeature in Kornia", "and RANSAC"])
        ends = [points.cpu().numpy() for points in (points0, points1)]
        plot_matches(*axes, *ends, inliers=inliers.cpu().numpy(), linewidth=0.4)
        save_plot(args.out, axes)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
