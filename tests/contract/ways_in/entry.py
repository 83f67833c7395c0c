"""What a way in is: its arguments, its call, and the rows that it gives."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

from ways_in.values import relaid, values

Rows = list[np.ndarray]
LAYOUTS = ("strided", "Fortran order", "inside a larger array", "reversed", "read-only")


def photographs(side: int) -> np.ndarray:
    """Three different pieces (3, side, side) of photographs."""
    import skimage.data

    camera, gravel = skimage.data.camera(), skimage.data.gravel()
    corners = ((camera, 90, 170), (camera, 220, 260), (gravel, 100, 200))
    return np.stack([image[y : y + side, x : x + side] for image, y, x in corners])


class Entry:
    """A public way in.

    needs      modules without which it is not there
    slow       takes seconds
    types      of arrays or tensors that it takes beside those of `arguments`
    side       of the images that it is given
    tolerance  between a batch and its items one by one
    rounding   without Numba, where BLAS sums as the shapes and strides suggest, and to the rows
               with Numba
    """

    name = ""
    needs: tuple[str, ...] = ()
    slow = False
    types: tuple[str, ...] = ()
    layout_names: tuple[str, ...] = LAYOUTS
    side = 128
    tolerance = 0.0
    rounding = 1e-4

    def same(self, rows: np.ndarray, expected: np.ndarray, image: np.ndarray) -> bool:
        """Whether the rows with and without Numba are equal, but for their rounding.

        Rounding may swap two keypoints of the same strength.
        """
        assert rows.shape == expected.shape
        return bool((np.abs(rows - expected).max(axis=1) <= self.rounding).mean() >= 0.98)

    def available(self) -> bool:
        return all(importlib.util.find_spec(module) for module in self.needs)

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        """What the call takes, for a batch (B, side, side)."""
        raise NotImplementedError

    def call(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def rows(self, result: Any) -> Rows:
        """What it found in each image, (n, D); checks the types of the result on the way."""
        raise NotImplementedError

    def type_of(self, result: Any) -> str:
        """The type of the descriptors, where it follows that of the arguments."""
        return ""

    def check_nothing(self) -> None:
        """No items give no rows, in the same types."""
        assert self.rows(self.call(*self.arguments(photographs(self.side)[:0]))) == []

    def layouts(self, *arguments: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The same arguments, otherwise laid out in memory."""
        for name in self.layout_names:
            yield name, tuple(relaid(argument, name) for argument in arguments)

    def snapshot(self, *arguments: Any) -> Any:
        """The values of the arguments, to be compared later."""
        return [values(argument) for argument in arguments]

    def __repr__(self) -> str:
        return self.name
