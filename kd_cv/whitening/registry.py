"""The registry of shipped matrices: name, file, checksum, provenance, measured figures."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path

from kd_cv.checks import as_int
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.io.files import PathLike, digest
from kd_cv.whitening.files import Key, Use, load, load_pth
from kd_cv.whitening.variants import BEST
from kd_cv.whitening.whitening import Whitening

INDEX = "index.json"
MAX_DIM = 2**31 - 1  # that files of settings can hold
Weights = PathLike | Whitening | Mapping[Key, Whitening]
DEFAULT_WHITENING: str | None = BEST
DEFAULT_WEIGHTS = "multiview"


@dataclass(frozen=True)
class Entry:
    """The entry of a name in the registry."""

    file: str  # a file beside index.json
    sha256: str  # of the whole file
    fitted_on: str
    patches: int
    pairs: int
    scenes: int
    command: str  # that made the file
    uses: Mapping[str, str] = field(default_factory=dict)  # use -> description of its matrices
    figures: Mapping[str, float] = field(default_factory=dict)  # measured with these matrices


def folder() -> Path:
    """Return the folder of the shipped matrices: in the installed package, or in the checkout."""
    installed = Path(str(resources.files("kd_cv"))) / "weights_data"
    if (installed / INDEX).is_file():
        return installed
    return Path(__file__).resolve().parents[2] / "weights"


def registry() -> Mapping[str, Entry]:
    """Return all shipped names and their entries."""
    return _registry(folder())


def resolve(
    weights: Weights, kernel: str, patch_size: int, dim: int | None = None, use: Use = "images"
) -> Whitening:
    """Return the matrices of `weights` for a kernel, a patch size and a use.

    weights: a shipped name, the path of an .npz or of the authors' .pth file, a fitted Whitening,
    or the entries of a file. The nearest patch size is taken, the smaller of two: the statistics of
    the descriptor hardly depend on it. dim: the dimension that the matrices must have.
    """
    source = "the given Whitening"
    if isinstance(weights, str | os.PathLike):
        source, weights = f"weights {os.fspath(weights)!r}", read_weights(weights)
    elif isinstance(weights, Mapping):
        source = "the given entries"
        if not all(isinstance(value, Whitening) for value in weights.values()):
            raise TypeError("a dict of weights has keys (kernel, patch size) and Whitening values")
    elif not isinstance(weights, Whitening):
        raise TypeError(
            "weights must be a shipped name, a path, a Whitening or a dict of them, "
            f"got {type(weights).__name__}"
        )
    if isinstance(weights, Mapping):
        weights = _nearest(weights, kernel, patch_size, use, source)
    if dim is not None and weights.dim != dim:
        raise ValueError(
            f"{source} are for descriptors of {weights.dim} dimensions, "
            f"but the {kernel!r} descriptor has {dim}"
        )
    return weights


def projection_for(
    spec: Spec, whitening: str | None, weights: Weights, dim: int, use: Use = "images"
) -> Projection | None:
    """Return the projection to `dim` dimensions, or to all if there are fewer; None for raw."""
    dim = as_int(dim, "dim", 1, MAX_DIM)
    if whitening is None:
        return None
    fitted = resolve(weights, spec.kernel, spec.patch_size, spec.dim, use)
    return fitted.projection(whitening, min(dim, fitted.max_dim))


def file_sha256(path: PathLike) -> str:
    """Return the SHA-256 of a file, as the registry records it."""
    return digest(Path(path).read_bytes())


def read_weights(weights: PathLike) -> Whitening | Mapping[Key, Whitening]:
    """Read the matrices of a shipped name or of a file."""
    shipped, path = registry(), Path(weights)
    if weights in shipped:
        return _shipped(folder() / shipped[str(weights)].file, shipped[str(weights)].sha256)
    if path.suffix not in (".npz", ".pth"):
        raise ValueError(
            f"unknown weights {str(path)!r}: shipped are {', '.join(shipped)}; "
            "a path must end in .npz or .pth"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file of weights {str(path)!r}; shipped are {', '.join(shipped)}"
        )
    state = path.stat()
    return _file(path, state.st_mtime_ns, state.st_size)


def _nearest(
    entries: Mapping[Key, Whitening], kernel: str, patch_size: int, use: Use, source: str
) -> Whitening:
    fitting = [key for key in entries if key[0] == kernel and key[2:] in ((), (use,))]
    if not fitting:
        others = sorted({" of ".join((key[0], *key[2:])) for key in entries})
        wanted = f"kernel {kernel!r}" + (f" of {use}" if kernel in {k[0] for k in entries} else "")
        raise ValueError(f"{source} has no matrices for {wanted}, only for {', '.join(others)}")
    return entries[min(fitting, key=lambda k: (abs(k[1] - patch_size), k[1], not k[2:]))]


@lru_cache(maxsize=8)
def _registry(shipped: Path) -> dict[str, Entry]:
    content = json.loads((shipped / INDEX).read_text(encoding="utf-8"))
    return {name: Entry(**entry) for name, entry in content.items()}


@lru_cache(maxsize=8)
def _shipped(path: Path, sha256: str) -> dict[Key, Whitening]:
    actual = file_sha256(path)
    if actual != sha256:
        raise ValueError(
            f"{path} is not the file that was shipped: its SHA-256 is {actual}, not {sha256}"
        )
    return load(path)


@lru_cache(maxsize=8)
def _file(path: Path, mtime_ns: int, size: int) -> Whitening | Mapping[Key, Whitening]:
    """Read a file of a user, again if it has changed."""
    return load_pth(path) if path.suffix == ".pth" else load(path)
