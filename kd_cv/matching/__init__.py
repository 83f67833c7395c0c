"""Match two images: nearest neighbours, two-view geometry, one call."""
