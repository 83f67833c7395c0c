"""Detect keypoints: scale space, extrema, orientations."""

__all__: list[str] = []
