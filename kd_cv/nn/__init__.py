"""The descriptor in torch: modules, sampling at LAFs, export."""

try:
    import torch  # noqa: F401  (here once for all files of this room)
except ImportError as error:
    raise ImportError("KDModule and KDFeature need torch: pip install kd-cv[torch]") from error

__all__: list[str] = []
