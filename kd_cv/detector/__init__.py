"""Keypoints: a scale space, its extrema, their places, their angles. Imports only `descriptor`."""

__all__: list[str] = []
