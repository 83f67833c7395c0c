"""The descriptor and the detector with OpenCV's interface."""
