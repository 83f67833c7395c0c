"""The last step of a descriptor: from the raw vector to the whitened one."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor import core

Array32 = NDArray[np.float32]


@dataclass(frozen=True)
class Projection:
    """The last step: A^T (V - mu), raised to `power` with its sign kept, of unit norm.

    mu (D,), A (D, d)
    """

    mu: Array32
    A: Array32
    power: float = 1.0

    @property
    def dim(self) -> int:
        return self.A.shape[1]

    @property
    def digest(self) -> str:
        """A short text that differs when mu or A do."""
        content = np.ascontiguousarray(self.mu).tobytes() + np.ascontiguousarray(self.A).tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def __call__(self, V: Array32) -> Array32:
        """(N, D) raw vectors to (N, d)."""
        Y = core.project(V, self.mu, self.A)
        return Y if self.power == 1.0 else core.normalised(core.signed_power(Y, self.power))
