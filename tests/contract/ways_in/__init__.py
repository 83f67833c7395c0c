"""One contract for every public way in: a table of entry points and a list of checks.

Each entry point is an adapter from a common input, a batch of gray images (B, side, side) uint8, to
a common output, one array of rows for each of them. `cv2.SIFT`, whose place KDDescriptor takes, is
among them. The tests run every check on every entry; `python -m ways_in`, in tests/contract, runs
them in an interpreter that cannot import a given module.

entry     what a way in is
arrays    the ways in for NumPy arrays, `tensors` for torch
checks    what all of them keep
values    arguments in other types and layouts, and what they hold
"""

from ways_in.arrays import Describe, DetectAndCompute, Match, OfBytes, OfKDDescriptor, OfSIFT
from ways_in.checks import CHECKS
from ways_in.entry import Entry
from ways_in.tensors import OfKDFeature, OfKDModule

__all__ = ["CHECKS", "ENTRIES"]

ENTRIES: tuple[Entry, ...] = (
    OfSIFT(),
    OfKDDescriptor(),
    OfBytes(),
    DetectAndCompute(),
    Describe(),
    Match(),
    OfKDModule(),
    OfKDFeature(),
)
