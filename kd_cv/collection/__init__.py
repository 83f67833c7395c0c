"""Whole collections: extraction, COLMAP, retrieval, a cluster."""

__all__: list[str] = []
