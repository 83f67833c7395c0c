"""The paper's figures and numbers."""

__all__: list[str] = []
