"""Explain a match: which pixels made two patches alike.

python demos/explain_match.py [left.jpg right.jpg] --out explanation.png
"""

import numpy as np
from photographs import arguments, load

from kd_cv import KDDescriptor, match
from kd_cv.explain import explain

try:
    from kd_cv.viz.maps import plot_explanation
    from kd_cv.viz.style import save_plot
except ImportError as error:
    raise SystemExit(str(error)) from None

args = arguments(__doc__, "explanation.png")
image0, image1 = load(args.photos, "stereo_motorcycle")
kd = KDDescriptor(patch_size=64)
result = match(image0, image1, kd)
inliers = result.matches[result.inliers]
if not len(inliers):
    raise SystemExit(f"there is no match to explain: {result.failure}")
sizes = [result.keypoints0[i].size for i, _ in inliers]
i, j = inliers[np.argsort(sizes)[-min(25, len(sizes))]]  # a large one
why = explain(image0, result.keypoints0[i], image1, result.keypoints1[j], kd)
parts = ", ".join(f"{part} {share:+.3f}" for part, share in why.shares.items())
print(f"similarity {why.similarity:.3f}: {parts}")
save_plot(args.out, plot_explanation(why, titles=("image 0", "image 1")))
print(f"why they match: {args.out}")
