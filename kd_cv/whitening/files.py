"""Files of fitted matrices: of kd_cv (.npz), and of the authors' package and Kornia (.pth)."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kd_cv.extras import extra
from kd_cv.io.archive import read_archive, write_archive
from kd_cv.io.files import PathLike, refused_as
from kd_cv.whitening.variants import BETA_INDEX, FLOOR
from kd_cv.whitening.whitening import Whitening

SAFE_TORCH = (2, 6)  # the first release whose weights_only holds what it promises

# Images at one patch size, images at several averaged patch sizes, or patches.
Use = Literal["images", "scales", "patches"]

# Kernel and patch size of an entry; and its use, if it is for that one alone.
Key = tuple[str, int] | tuple[str, int, str]


def use_of_images(scales: Sequence[float]) -> Use:
    """Return the use of matrices for images, by the patch sizes that are averaged."""
    return "images" if len(scales) == 1 else "scales"


def save(path: PathLike, entries: Mapping[Key, Whitening]) -> None:
    """Write the entries as one .npz file; equal entries give equal bytes."""
    arrays, settings = {}, {}
    for key, whitening in entries.items():
        prefix = "-".join(map(str, key))
        _key_from_name(prefix)  # a ValueError if it is not a key
        for name in ("mu", "U", "lam", "A_s", "mu_s", "A_m", "mu_m"):
            if getattr(whitening, name) is not None:
                arrays[f"{prefix}/{name}"] = getattr(whitening, name)
        settings[prefix] = {
            "t": float(whitening.t),
            "beta_index": int(whitening.beta_index),
            "lam_scale": float(whitening.lam_scale),
            "shrink_index": whitening.shrink_index,
            "provenance": whitening.provenance,
        }
    if not settings:
        raise ValueError("there is no entry to save")
    write_archive(path, "whitening", arrays, {"entries": settings})


def load(path: PathLike) -> dict[Key, Whitening]:
    """Read a file written by `save`; ValueError if it is damaged."""
    arrays, meta = read_archive(path, "whitening")
    entries: dict[Key, Whitening] = {}
    damage = AttributeError, KeyError, TypeError, ValueError, ArithmeticError
    with refused_as(f"{path}: damaged matrices", *damage):
        for prefix, settings in meta["entries"].items():
            parts: dict[str, Any] = {
                name.removeprefix(prefix + "/"): arrays.pop(name)
                for name in list(arrays)
                if name.startswith(prefix + "/")
            }
            entries[_key_from_name(prefix)] = Whitening(**parts, **settings)
    if arrays or not entries:
        raise ValueError(f"{path}: its entries and its arrays do not agree")
    return entries


def _key_from_name(name: str) -> Key:
    pattern = r"([a-z][a-z0-9_]{0,31})-([1-9][0-9]{0,4})(?:-(images|scales|patches))?"
    match = re.fullmatch(pattern, name)
    if match is None:
        raise ValueError(
            "an entry must be (kernel, patch size), such as ('concat', 32), or (kernel, patch "
            f"size, use), where the use is 'images', 'scales' or 'patches'; got {name!r}"
        )
    key = match[1], int(match[2])
    return (*key, match[3]) if match[3] else key


def load_pth(path: PathLike, training_set: str = "liberty") -> Whitening:
    """Read the matrices of the authors' package and of Kornia (mkd-concat-64.pth and the like).

    Projections equal those of `kornia.feature.mkd.Whitening`: its W_US takes the spectrum as stored
    and counts keval = 40 from 0.
    """
    torch = extra("torch", f"reading {path} needs torch", "torch")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < SAFE_TORCH:
        raise ImportError(
            f"reading {path} needs torch {'.'.join(map(str, SAFE_TORCH))} or newer, "
            f"not {torch.__version__}: a file can make older ones run any code (CVE-2025-32434)"
        )
    data = io.BytesIO(Path(path).read_bytes())
    # Exception: torch does not say what a damaged file makes it raise.
    with refused_as(f"{path} is not a file of torch tensors", Exception):
        models = torch.load(data, map_location="cpu", weights_only=True)
    if not isinstance(models, dict) or training_set not in models:
        sets = sorted(map(str, models)) if isinstance(models, dict) else type(models).__name__
        raise ValueError(f"{path} has no training set {training_set!r}, but {sets}")
    wanted = f"{path}: expected mean, eigvecs, eigvals in 'pca' and 'lw' of {training_set!r}"
    with refused_as(wanted, AttributeError, KeyError, TypeError, ValueError, RuntimeError):
        pca = models[training_set]["pca"]
        lw = models[training_set].get("lw")
        lam = np.asarray(pca["eigvals"]).astype(np.float64)
        return Whitening(
            mu=np.asarray(pca["mean"]).reshape(-1),
            U=np.asarray(pca["eigvecs"]),
            lam=np.maximum(lam, FLOOR * lam.max()),
            A_s=None if lw is None else np.asarray(lw["eigvecs"]),
            mu_s=None if lw is None else np.asarray(lw["mean"]).reshape(-1),
            beta_index=min(BETA_INDEX + 1, len(lam)),
            provenance={"file": Path(path).name, "training_set": training_set},
        )
