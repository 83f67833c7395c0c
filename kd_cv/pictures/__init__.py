"""The picture of a match and the colours of every picture: what a result can draw of itself."""

__all__: list[str] = []
