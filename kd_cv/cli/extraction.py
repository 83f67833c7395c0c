"""What `extract` and `colmap` share: the extraction that the options name."""

from typing import Any


def extraction_of(descriptor: str, weights: str | None, *settings: Any) -> Any:
    """What --descriptor and --weights name, with the other settings of an Extraction."""
    from kd_cv.cli.matcher import make_feature
    from kd_cv.collection import Extraction

    return Extraction(make_feature(descriptor, weights) if weights else descriptor, *settings)
