"""Files of fitted matrices: several entries of one fit, by kernel, patch size and use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kd_cv.io.archive import read_archive, write_archive
from kd_cv.whitening.whitening import Whitening

# What matrices are used for: descriptors of images at one patch size, of images at several that are
# averaged, or of patches that are cut out already.
Use = Literal["images", "scales", "patches"]

# Kernel and patch size that an entry of a file is for; and the use, if it is for that one alone.
Key = tuple[str, int] | tuple[str, int, str]


def use_of_images(scales: Sequence[float]) -> Use:
    """What matrices for images are used for, by the patch sizes that are averaged over."""
    return "images" if len(scales) == 1 else "scales"


def save(path: str | os.PathLike[str], entries: Mapping[Key, Whitening]) -> None:
    """Write the entries as one .npz file, whole or not at all; equal entries give equal bytes."""
    arrays, settings = {}, {}
    for key, whitening in entries.items():
        prefix = _key_name(key)
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


def load(path: str | os.PathLike[str]) -> dict[Key, Whitening]:
    """Read a file written by `save`; a damaged or foreign file is a ValueError."""
    arrays, meta = read_archive(path, "whitening")
    entries: dict[Key, Whitening] = {}
    try:
        for prefix, settings in meta["entries"].items():
            parts: dict[str, Any] = {
                name.removeprefix(prefix + "/"): arrays.pop(name)
                for name in list(arrays)
                if name.startswith(prefix + "/")
            }
            entries[_key_from_name(prefix)] = Whitening(**parts, **settings)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{os.fspath(path)}: damaged matrices: {error}") from error
    if arrays or not entries:
        raise ValueError(f"{os.fspath(path)}: its entries and its arrays do not agree")
    return entries


def _key_name(key: Key) -> str:
    name = "-".join(map(str, key))
    _key_from_name(name)
    return name


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
