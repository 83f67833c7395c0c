"""Detector and descriptor with OpenCV's interface."""
