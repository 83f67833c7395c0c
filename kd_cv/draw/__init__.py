"""Pictures: plots that compose, and the page of a match."""

__all__: list[str] = []
