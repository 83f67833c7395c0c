"""Whole collections: extraction, COLMAP, retrieval, a cluster."""
