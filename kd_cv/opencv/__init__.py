"""Detector and descriptor with OpenCV's interface."""

__all__: list[str] = []
