"""Which images show this? Index a small collection, and ask with a photograph.

python demos/retrieval.py [folder query.jpg] --out answers.png
"""

import tempfile
from pathlib import Path

import cv2
import numpy as np
from photographs import arguments, example, load, warped, write

from kd_cv.collection import extract
from kd_cv.collection.retrieval import Index

NAMES = ("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "gravel", "rocket")


def fill(folder: Path) -> np.ndarray:
    """Write photographs, and warps of them, into a folder; return another view of one of them."""
    askew = [[30, 10], [380, 0], [399, 299], [0, 280]], (400, 300)
    for name, image in zip(NAMES, example(*NAMES), strict=True):
        write(f"{folder}/{name}.png", image)
        write(f"{folder}/{name}-askew.png", warped(image, *askew))
    return warped(example("coffee")[0], [[0, 40], [400, 0], [370, 300], [40, 270]], (400, 300))


def tile(image: np.ndarray, text: str, outline: np.ndarray | None = None) -> np.ndarray:
    """A picture of 300 x 300 pixels with an outline and a text."""
    if outline is not None:
        cv2.polylines(image, [np.int32(outline)], True, (66, 228, 240), 5, cv2.LINE_AA)
    small = cv2.resize(image, (300, 270), interpolation=cv2.INTER_AREA)
    canvas = np.vstack([small, np.full((30, 300, 3), 255, np.uint8)])
    return cv2.putText(canvas, text, (4, 290), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (40, 40, 40), 1)


args = arguments(__doc__, "answers.png")
with tempfile.TemporaryDirectory() as work:
    folder = Path(args.photos[0] if args.photos else work)
    query = load(args.photos[1:])[0] if args.photos else fill(folder)
    try:
        print(extract(folder, f"{work}/features.h5"))
        index = Index.build(f"{work}/features.h5")
    except ImportError as error:
        raise SystemExit(str(error)) from None
    corners = np.float64([[[0, 0], [1, 0], [1, 1], [0, 1]]]) * query.shape[1::-1]
    tiles = [tile(query.copy(), f"query, {len(index.names)} images")]
    for hit in (hits := index.search(query, top=4)):
        outline = cv2.perspectiveTransform(corners, hit.H_0to1)[0] if hit.verified else None
        tiles.append(
            tile(cv2.imread(str(folder / hit.name)), f"{hit.name}: {hit.inliers} inliers", outline)
        )
write(args.out, np.hstack(tiles))
print(f"{sum(hit.verified for hit in hits)} images show the query: {args.out}")
