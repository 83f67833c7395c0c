"""The matrices of the authors' package and of Kornia: .pth files of torch tensors."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import read_bytes
from kd_cv.whitening.variants import BETA_INDEX, FLOOR
from kd_cv.whitening.whitening import Whitening

SAFE_TORCH = (2, 6)  # the first release whose weights_only holds what it promises

_MAX_PTH_BYTES = 1 << 28
_MAX_ENTRIES = 1 << 22  # of a matrix; the authors' largest has 238 x 238


def load_pth(path: str | os.PathLike[str], training_set: str = "liberty") -> Whitening:
    """Read the matrices of the authors' package and of Kornia (mkd-concat-64.pth and the like).

    Projections equal those of `kornia.feature.mkd.Whitening`: its W_US takes the spectrum as stored
    and counts keval = 40 from 0.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"reading {os.fspath(path)} needs torch: pip install kd-cv[torch]"
        ) from error
    if _version(torch.__version__) < SAFE_TORCH:
        raise ImportError(
            f"reading {os.fspath(path)} needs torch {'.'.join(map(str, SAFE_TORCH))} or newer, "
            f"not {torch.__version__}: a file can make older ones run any code (CVE-2025-32434)"
        )
    # Not from the file itself, of which torch would ask, in vain, for gigabytes at a time.
    data = io.BytesIO(read_bytes(path, _MAX_PTH_BYTES))
    try:
        models = torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:  # torch does not say what a damaged file makes it raise
        raise ValueError(f"{os.fspath(path)} is not a file of torch tensors: {error}") from error
    if not isinstance(models, dict) or training_set not in models:
        sets = sorted(map(str, models)) if isinstance(models, dict) else type(models).__name__
        raise ValueError(f"{os.fspath(path)} has no training set {training_set!r}, but {sets}")
    try:
        pca = models[training_set]["pca"]
        lw = models[training_set].get("lw")
        lam = _from_tensor(pca["eigvals"]).astype(np.float64)
        return Whitening(
            mu=_from_tensor(pca["mean"]).reshape(-1),
            U=_from_tensor(pca["eigvecs"]),
            lam=np.maximum(lam, FLOOR * lam.max()),
            A_s=None if lw is None else _from_tensor(lw["eigvecs"]),
            mu_s=None if lw is None else _from_tensor(lw["mean"]).reshape(-1),
            beta_index=min(BETA_INDEX + 1, len(lam)),
            provenance={"file": Path(path).name, "training_set": training_set},
        )
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{os.fspath(path)}: expected mean, eigvecs, eigvals in 'pca' and 'lw' "
            f"of {training_set!r}: {error}"
        ) from error


def _from_tensor(tensor: Any) -> NDArray[Any]:
    # A tensor of any size may be a view of one number: look before it is copied.
    if tensor.numel() > _MAX_ENTRIES:
        raise ValueError(f"a matrix of {tensor.numel()} entries, at most {_MAX_ENTRIES} are read")
    return np.asarray(tensor)


def _version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
