"""The registry of shipped matrices: name, file, checksum, provenance, measured figures.

The files are in `weights/` of a checkout and in `kd_cv/weights_data/` of an installed wheel, beside
`index.json`, which maps each name to its `Entry`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path

from kd_cv.checks import as_int
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.io.archive import MAX_BYTES
from kd_cv.io.files import PathLike, digest, read_bytes, read_text, refused_as
from kd_cv.whitening.files import Key, Use, load, load_pth
from kd_cv.whitening.variants import BEST
from kd_cv.whitening.whitening import Whitening

INDEX = "index.json"
MAX_INDEX_BYTES = 2**20
MAX_DIM = 2**31 - 1  # that files of settings can hold; any above what there is means all
Weights = PathLike | Whitening | Mapping[Key, Whitening]
DEFAULT_WHITENING: str | None = BEST
DEFAULT_WEIGHTS = "multiview"


@dataclass(frozen=True)
class Entry:
    """What the registry says about one name."""

    file: str  # a file beside index.json
    sha256: str  # of the whole file
    fitted_on: str
    patches: int
    pairs: int
    scenes: int
    command: str  # that made the file
    uses: Mapping[str, str] = field(default_factory=dict)  # which matrices are for what
    figures: Mapping[str, float] = field(default_factory=dict)  # measured with these matrices


def folder() -> Path:
    """Where the shipped matrices are: inside the installed package, else in the checkout."""
    installed = Path(str(resources.files("kd_cv"))) / "weights_data"
    if (installed / INDEX).is_file():
        return installed
    return Path(__file__).resolve().parents[2] / "weights"


def registry() -> Mapping[str, Entry]:
    """All shipped names and their entries, in the order of the index."""
    return _registry(folder())


def resolve(
    weights: Weights, kernel: str, patch_size: int, dim: int | None = None, use: Use = "images"
) -> Whitening:
    """The matrices that a user means by `weights`.

    weights: a shipped name, the path of an .npz or of the authors' .pth file, a fitted Whitening,
    or the entries of a file. The kernel must be there; among its patch sizes the nearest is taken
    (the smaller of two), as the statistics of the descriptor hardly depend on the patch size; and
    of that size those for `use` alone, if there are any, else those for every use.
    dim: the dimension of the raw descriptor, which the matrices must have.
    """
    source = "the given Whitening"
    if isinstance(weights, str | os.PathLike):
        source, weights = f"weights {os.fspath(weights)!r}", read_weights(weights)
    elif isinstance(weights, Mapping):
        source = "the given entries"
        for key, value in weights.items():
            if not (isinstance(key, tuple) and len(key) in (2, 3) and isinstance(value, Whitening)):
                raise TypeError(
                    "a dict of weights has keys (kernel, patch size) and a Whitening for each, "
                    f"got {key!r}: {type(value).__name__}"
                )
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
    """The projection that `whitening` and `weights` name, of at most `dim` dimensions.

    None without whitening: the descriptor is then the raw vector, whatever `dim` says.
    """
    dim = as_int(dim, "dim", 1, MAX_DIM)
    if whitening is None:
        return None
    fitted = resolve(weights, spec.kernel, spec.patch_size, spec.dim, use)
    return fitted.projection(whitening, min(dim, fitted.max_dim))  # or all there are


def file_sha256(path: PathLike) -> str:
    """SHA-256 of a file, as the registry records it."""
    return digest(read_bytes(path, MAX_BYTES))


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
    index = shipped / INDEX
    wanted = ", ".join(f.name for f in fields(Entry))
    errors = AttributeError, TypeError, ValueError, RecursionError
    with refused_as(f"{index} must map names to {{{wanted}}}", *errors):
        content = json.loads(read_text(index, MAX_INDEX_BYTES, "utf-8"))
        entries = {name: Entry(**entry) for name, entry in content.items()}
    return entries


@lru_cache(maxsize=8)
def _shipped(path: Path, sha256: str) -> dict[Key, Whitening]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is in the registry, but not on the disk")
    actual = file_sha256(path)
    if actual != sha256:
        raise ValueError(
            f"{path} is not the file that was shipped: its SHA-256 is {actual}, not {sha256}"
        )
    return load(path)


@lru_cache(maxsize=8)
def _file(path: Path, mtime_ns: int, size: int) -> Whitening | Mapping[Key, Whitening]:
    """A file of a user's: written anew, it is read anew."""
    return load_pth(path) if path.suffix == ".pth" else load(path)
