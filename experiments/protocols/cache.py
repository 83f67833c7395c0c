"""Describe once, score many times: descriptors of candidates, stored in a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.protocols.candidates import Array32, Candidate, Patches
from kd_cv.descriptor.frames import Frames
from kd_cv.io.archive import checksum, read_archive, write_archive

Gray = NDArray[np.uint8]


@dataclass(frozen=True)
class Cache:
    """Store descriptors in .npz files of a folder, one for each set and candidate.

    A file with other inputs or settings, or a damaged one, is replaced.
    """

    folder: Path | None = None

    def descriptors(
        self,
        name: str,
        candidate: Candidate,
        inputs: Mapping[str, NDArray[Any]],
        describe: Callable[[], Array32],
    ) -> Array32:
        """Return descriptors of the set `name`; `inputs`: arrays that describe() reads."""
        if self.folder is None:
            return describe()
        path = self.folder / f"{_slug(name)}.{_slug(candidate.name)}.npz"
        made_from = {"inputs": checksum(inputs, {}), "candidate": dict(candidate.configuration())}
        wanted = json.dumps(made_from, sort_keys=True)
        with suppress(OSError, ValueError, KeyError):
            arrays, content = read_archive(path, "descriptors")
            if content["made_from"] == wanted:
                return arrays["descriptors"]
        descriptors = np.ascontiguousarray(describe(), np.float32)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_archive(path, "descriptors", {"descriptors": descriptors}, {"made_from": wanted})
        return descriptors

    def patches(self, name: str, candidate: Candidate, patches: Patches) -> Array32:
        inputs = {"patches": patches}
        return self.descriptors(name, candidate, inputs, lambda: candidate.of_patches(patches))

    def frames(self, name: str, candidate: Candidate, gray: Gray, frames: Frames) -> Array32:
        inputs: dict[str, NDArray[Any]] = {"gray": gray, "frames": frames}
        return self.descriptors(name, candidate, inputs, lambda: candidate.at_frames(gray, frames))


NO_CACHE = Cache()


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", name).strip("-.")
