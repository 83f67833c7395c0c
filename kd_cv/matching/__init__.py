"""Match two images: nearest neighbours, two-view geometry, one call."""

__all__: list[str] = []
