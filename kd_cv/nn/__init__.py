"""The descriptor in torch: modules, sampling at LAFs, export."""

__all__: list[str] = []
