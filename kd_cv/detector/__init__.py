"""Detect keypoints: scale space, extrema, orientations."""
