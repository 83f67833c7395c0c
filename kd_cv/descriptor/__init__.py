"""Describe frames or patches: raw and projected vectors."""

__all__: list[str] = []
