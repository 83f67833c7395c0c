"""From frames or patches to raw and projected vectors. Imports nothing above itself."""

__all__: list[str] = []
