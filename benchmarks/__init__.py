"""Benchmarks of kd_cv, run from a checkout: python -m benchmarks."""
