"""Benchmarks of kd_cv, run from a checkout: python -m experiments bench."""
