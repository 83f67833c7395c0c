"""Scenes of sequences and reconstructions; detectors and jitter to build them with."""
