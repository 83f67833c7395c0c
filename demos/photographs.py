"""Photographs for the other demos: those of the command line, or examples of scikit-image."""

import argparse

import cv2
import numpy as np


def arguments(doc: str, out: str) -> argparse.Namespace:
    """The command line of a demo: two photographs or none, and where the picture goes."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("photos", nargs="*", help="two photographs; without them, an example")
    parser.add_argument("--out", default=out, help="the picture to write")
    args = parser.parse_args()
    if len(args.photos) not in (0, 2):
        parser.error("give two photographs, or none")
    return args


def example(*names: str) -> list[np.ndarray]:
    """Photographs of scikit-image (H, W, 3) in BGR."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("give photographs, or for an example: pip install scikit-image") from None
    found = (getattr(data, name)() for name in names)
    images = [image for one in found for image in (one[:2] if isinstance(one, tuple) else [one])]
    return [np.ascontiguousarray(np.dstack([image] * 3)[..., 2::-1]) for image in images]


def load(paths: list[str], *names: str) -> list[np.ndarray]:
    """The photographs of these paths; without any, the examples of these names."""
    images = [cv2.imread(path) for path in paths] or example(*names)
    for path, image in zip(paths, images, strict=False):
        if image is None:
            raise SystemExit(f"cannot read {path} as an image")
    return images


def warped(image: np.ndarray, corners: list, size: tuple[int, int]) -> np.ndarray:
    """The image with its corners at the given places of a picture of this size."""
    height, width = image.shape[:2]
    box = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    H = cv2.getPerspectiveTransform(box, np.float32(corners))
    return cv2.warpPerspective(image, H, size, flags=cv2.INTER_AREA, borderValue=(90, 110, 120))


def write(path: str, picture: np.ndarray) -> None:
    """Write a picture, or say that it cannot be written."""
    if not cv2.imwrite(path, picture):
        raise SystemExit(f"cannot write {path}")
