"""Experiments with kd_cv, run from a clone: python -m experiments NAME."""
