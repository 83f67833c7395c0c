"""From two images to their epipolar geometry without leaving torch.

    python demos/kornia_pipeline.py --out kornia.png
    python demos/kornia_pipeline.py left.jpg right.jpg --device cuda

Without photographs, the two of a motorcycle that come with scikit-image are matched.
"""

import argparse

import cv2

try:
    import kornia
    import matplotlib  # noqa: F401
    import torch
    from kornia.feature import DescriptorMatcher, LocalFeatureMatcher
except ImportError as error:
    raise SystemExit(f"this demo needs {error.name}: pip install kd-cv[cli,torch]") from None

from kd_cv import KDFeature
from kd_cv.io.files import utf8
from kd_cv.viz.images import plot_images, plot_matches
from kd_cv.viz.style import save_plot, style


def photographs(paths: list[str]) -> list[torch.Tensor]:
    """The given two, or a stereo pair: (1, 3, H, W), RGB in 0..1."""
    if paths:
        arrays = [cv2.imread(path) for path in paths]
        for path, array in zip(paths, arrays, strict=True):
            if array is None:
                raise SystemExit(f"cannot read {path!r} as an image")
        images = [kornia.image.image_to_tensor(array, keepdim=False) / 255 for array in arrays]
        return [kornia.color.bgr_to_rgb(image) for image in images]
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    pair = data.stereo_motorcycle()[:2]
    return [kornia.image.image_to_tensor(image, keepdim=False) / 255 for image in pair]


def as_bgr(image: torch.Tensor):
    return kornia.image.tensor_to_image((kornia.color.rgb_to_bgr(image) * 255).byte())


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=utf8, nargs="*", help="two photographs")
    parser.add_argument("--features", type=int, default=1000, help="of each image")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=utf8, default="kornia.png")
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
    F_0to1, inliers = kornia.geometry.RANSAC("fundamental", inl_th=1.0)(points0, points1)
    print(f"{len(points0)} matches, {int(inliers.sum())} inliers; F_0to1 =\n{F_0to1.cpu().numpy()}")

    with style():
        axes = plot_images([as_bgr(image0), as_bgr(image1)])
        drawn = [values[::4].cpu().numpy() for values in (points0, points1, inliers)]
        plot_matches(*axes, *drawn, legend=False)
        axes[0].figure.suptitle("KDFeature in Kornia, inliers in blue; one match in four is drawn")
        save_plot(args.out, axes)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
