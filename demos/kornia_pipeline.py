"""From two images to their epipolar geometry without leaving torch.

python demos/kornia_pipeline.py [left.jpg right.jpg] --out kornia.png
"""

import cv2
from photographs import arguments, load

try:
    import kornia
    import torch
    from kornia.feature import DescriptorMatcher, LocalFeatureMatcher

    from kd_cv import KDFeature
    from kd_cv.viz.images import plot_images, plot_matches
    from kd_cv.viz.style import save_plot
except ImportError as error:
    raise SystemExit(f"{error}: pip install kd-cv[cli,torch]") from None

args = arguments(__doc__, "kornia.png")
images = load(args.photos, "stereo_motorcycle")
device = "cuda" if torch.cuda.is_available() else "cpu"
grays = [cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for image in images]
image0, image1 = (torch.from_numpy(gray).to(device)[None, None] / 255 for gray in grays)
matcher = LocalFeatureMatcher(KDFeature(1000), DescriptorMatcher("smnn", 0.9)).to(device)
with torch.inference_mode():
    found = matcher({"image0": image0, "image1": image1})
    points0, points1 = found["keypoints0"], found["keypoints1"]
    if len(points0) < 8:
        raise SystemExit(f"only {len(points0)} matches: the photographs have little in common")
    torch.manual_seed(0)
    F_0to1, inliers = kornia.geometry.RANSAC("fundamental", inl_th=1.0)(points0, points1)
print(f"{len(points0)} matches, {int(inliers.sum())} inliers; F_0to1 =\n{F_0to1.cpu().numpy()}")
axes = plot_images(images)
drawn = [values[::4].cpu().numpy() for values in (points0, points1, inliers)]
plot_matches(*axes, *drawn, legend=False)
save_plot(args.out, axes)
print(f"one match in four, inliers in blue: {args.out}")
