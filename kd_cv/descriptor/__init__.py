"""Describe frames or patches: raw and projected vectors."""
