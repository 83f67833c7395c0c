"""Fine-tune the supervised whitening W_S with a metric-learning loss on self-supervised pairs.

    python demos/finetune_whitening.py --out finetuned.png

Pairs are keypoints of a photograph and of random warps of it. W_S is fitted to them, then trained
so that each patch of a batch finds its partner; measured on two photographs that neither has seen.
"""

import argparse
from pathlib import Path

import numpy as np

try:
    import matplotlib.pyplot as plt
    import torch
    import torch.nn.functional as F
    from skimage import data
except ImportError as error:
    raise SystemExit(f"this demo needs {error.name}: pip install kd-cv[cli,torch]") from None

from kd_cv import KDModule, describe
from kd_cv.descriptor.patches import extract_patches
from kd_cv.fit.warps import warp_scene
from kd_cv.gray import as_gray
from kd_cv.matching.metrics import average_precision
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.viz.style import save_plot, style
from kd_cv.whitening import Statistics, Whitening, save

TRAIN = ("astronaut", "coffee", "brick", "grass", "gravel", "camera")
HELD_OUT, VIEWS = ("chelsea", "coins"), 10  # views of each photograph


def pairs_of(name: str, seed: int) -> list[torch.Tensor]:
    """Matching patches (N, 2, 32, 32) of a photograph and of each of its warps."""
    scene = warp_scene(as_gray(getattr(data, name)()), VIEWS, seed, max_keypoints=800)
    patches = [torch.from_numpy(extract_patches(v.load(), v.frames, 32)) for v in scene.views]
    rows = [scene.pairs(0, view).T for view in range(1, VIEWS)]
    return [torch.stack([patches[0][i], patches[k][j]], 1) for k, (i, j) in enumerate(rows, 1)]


def figure(kd: KDModule, views: list[torch.Tensor]) -> float:
    """Mean average precision of nearest neighbours, in percent."""
    sides = ([kd(pairs[:, k : k + 1]).detach().numpy() for k in (0, 1)] for pairs in views)
    found = [(*match_descriptors(*side, mutual=False), len(side[0])) for side in sides]
    return 100 * float(np.mean([average_precision(-r, m[:, 0] == m[:, 1], n) for m, r, n in found]))


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--out", default="finetuned.png")
args = parser.parse_args()
torch.set_num_threads(1)  # the matrices are too small to share
train = torch.cat([view for seed, name in enumerate(TRAIN) for view in pairs_of(name, seed)])
held_out = [view for seed, name in enumerate(HELD_OUT) for view in pairs_of(name, seed)]
raw = describe(train.reshape(-1, 32, 32).numpy(), whitening=None)
fitted = Whitening.fit(Statistics(238).update(raw, np.arange(len(raw)).reshape(-1, 2)))
kd = KDModule(whitening="ws", weights=fitted, trainable=True)
kd.A.data /= kd.A.data.std()  # changes no descriptor, and suits the learning rate
curve = [(0, figure(kd, held_out))]
optimiser, rng = torch.optim.Adam(kd.parameters(), lr=0.01), torch.manual_seed(0)
for step in range(1, 201):  # rate, batch and temperature are cross-validated
    batch = train[torch.randint(len(train), (512,), generator=rng)]
    similar, partner = kd(batch[:, :1]) @ kd(batch[:, 1:]).T / 0.15, torch.arange(len(batch))
    optimiser.zero_grad()
    (F.cross_entropy(similar, partner) + F.cross_entropy(similar.T, partner)).backward()
    optimiser.step()
    if step % 20 == 0:
        curve.append((step, figure(kd, held_out)))
print(f"held-out mAP (%): closed form {curve[0][1]:.2f}, fine-tuned {curve[-1][1]:.2f}")
save(matrices := Path(args.out).with_suffix(".npz"), {("concat", 32): kd.as_whitening(fitted)})
with style():
    ax = plt.subplots(figsize=(4.5, 3.0))[1]
    ax.plot(*zip(*curve, strict=True), marker="o", label="fine-tuned")
    ax.axhline(curve[0][1], color="gray", linestyle="--", label="closed form")
    ax.set(xlabel="step", ylabel="held-out mAP (%)")
    ax.legend()
    save_plot(args.out, ax)
print(f"{args.out}, and {matrices} for KDDescriptor(weights={str(matrices)!r})")
