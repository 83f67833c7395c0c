"""Fine-tune a whitening with a metric-learning loss on pairs of patches of one photograph.

python demos/finetune_whitening.py --out finetuned.png
"""

from pathlib import Path

import cv2
import numpy as np
from photographs import arguments, example

try:
    import matplotlib.pyplot as plt
    import torch
    from kornia.feature import extract_patches_from_pyramid as cut
    from torch.nn.functional import cross_entropy

    from kd_cv import KDFeature, KDModule
    from kd_cv.viz.style import save_plot
    from kd_cv.whitening import save
except ImportError as error:
    raise SystemExit(f"{error}: pip install kd-cv[cli,torch]") from None


def pairs_of(name: str, seed: int) -> torch.Tensor:
    """Patches (N, 2, 32, 32) of a photograph and, at the same points, of a noisy affine warp."""
    rng = np.random.default_rng(seed)
    gray = cv2.cvtColor(example(name)[0], cv2.COLOR_BGR2GRAY)
    A = np.eye(2) + rng.normal(0, 0.15, (2, 2))
    centre = np.array(gray.shape[1::-1]) / 2
    M = np.column_stack([A, centre - A @ centre])
    noisy = cv2.warpAffine(gray, M, gray.shape[1::-1]) + rng.normal(0, 8, gray.shape)
    images = [torch.from_numpy(np.float32(i))[None, None] / 255 for i in (gray, noisy)]
    lafs = KDFeature(600)(images[0])[0]
    there = torch.from_numpy(np.float32(A)) @ lafs
    there[..., 2] += torch.from_numpy(np.float32(M[:, 2]))
    there[..., :2] *= 1 + 0.1 * torch.randn(1, lafs.shape[1], 1, 1)  # keypoints are not exact
    return torch.cat([cut(i, x, 32)[0] for i, x in zip(images, (lafs, there), strict=True)], 1)


args = arguments(__doc__, "finetuned.png")
torch.manual_seed(0)
train = torch.cat([pairs_of(n, k) for k, n in enumerate(("astronaut", "coffee", "brick", "grass"))])
held_out = pairs_of("chelsea", 9)
kd = KDModule(trainable=True, whitening="ws")
kd.A.data /= kd.A.data.std()  # changes no descriptor, and suits the learning rate
optimiser, curve = torch.optim.Adam(kd.parameters(), lr=0.01), []
for step in range(201):
    if step % 20 == 0:  # how many patches have their partner as the nearest neighbour, in %
        similar = kd(held_out[:, :1]).detach() @ kd(held_out[:, 1:]).detach().T
        right = similar.argmax(1) == torch.arange(len(similar))
        curve.append((step, 100 * float(right.float().mean())))
    batch = train[torch.randint(len(train), (512,))]
    similar = kd(batch[:, :1]) @ kd(batch[:, 1:]).T / 0.15
    optimiser.zero_grad()
    cross_entropy(similar, torch.arange(len(batch))).backward()
    optimiser.step()
print(f"right neighbours: {curve[0][1]:.1f} % before, {curve[-1][1]:.1f} % after")
save(matrices := Path(args.out).with_suffix(".npz"), {("concat", 32): kd.as_whitening()})
ax = plt.subplots(figsize=(4.5, 3.0))[1]
ax.plot(*zip(*curve, strict=True), marker="o")
ax.set(xlabel="step", ylabel="held-out patches with the right neighbour (%)")
save_plot(args.out, ax)
print(f"{args.out}, and {matrices} for KDDescriptor(weights={str(matrices)!r})")
