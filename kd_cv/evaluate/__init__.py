"""Protocols that compare descriptors, and their scores."""
