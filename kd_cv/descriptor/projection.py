"""The last step of a descriptor, from the raw vector to the whitened one.

The compiled kernel (`compiled.finish`) computes A^T V - A^T mu, which is the same.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.reference import nonzero, normalised

Array32 = NDArray[np.float32]


def project(V, mu, A, power: float):  # type: ignore[no-untyped-def]
    """A^T (V - mu), raised to `power` with its sign kept, of unit norm; zeros stay zeros.

    V (N, D), mu (D,), A (D, d). For NumPy, torch and TorchScript.
    """
    described = (V * V).sum(-1) > 0
    return raised(normalised((V - mu) @ A * described[:, None]), power)


def raised(Y, power: float):  # type: ignore[no-untyped-def]
    """Return |Y| ** power with the sign of Y, of unit norm; its derivative is finite at 0."""
    return Y if power == 1.0 else normalised(Y / nonzero(abs(Y)) ** (1.0 - power))


@dataclass(frozen=True)
class Projection:
    """`project` with fixed mu (D,), A (D, d) and power."""

    mu: Array32
    A: Array32
    power: float = 1.0

    @property
    def dim(self) -> int:
        return self.A.shape[1]

    @property
    def digest(self) -> str:
        """A hash of mu and A."""
        content = np.ascontiguousarray(self.mu).tobytes() + np.ascontiguousarray(self.A).tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def __call__(self, V: Array32) -> Array32:
        """Project raw vectors (N, D): (N, d)."""
        if V.ndim != 2 or V.shape[1] != len(self.mu):
            raise ValueError(f"expected raw vectors (N, {len(self.mu)}), got shape {V.shape}")
        return project(V, self.mu, self.A, self.power)
