"""Keypoints: the strongest of a list, and those of several detectors as frames."""
