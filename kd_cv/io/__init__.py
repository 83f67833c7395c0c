"""Files: written whole or not at all, read within limits."""

__all__: list[str] = []
