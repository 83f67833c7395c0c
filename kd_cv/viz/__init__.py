"""Pictures: plots on Matplotlib axes that compose, and the sheet of matches."""

__all__: list[str] = []
