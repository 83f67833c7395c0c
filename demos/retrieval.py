"""Which images show this? Index a small collection, ask with a photograph, draw the answers.

python demos/retrieval.py [folder query.jpg] --out answers.png
"""

import argparse
import tempfile
from pathlib import Path

import cv2
import numpy as np

from kd_cv.collection import extract
from kd_cv.collection.retrieval import Index
from kd_cv.io.files import utf8
from kd_cv.viz.palette import OUTLINE, bgr

NAMES = ("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "rocket")


def example(folder: Path) -> np.ndarray:
    """Fill a folder with photographs, each also seen askew; return another view of one of them."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("for the example: pip install scikit-image") from None
    rng = np.random.default_rng(0)
    for name in NAMES:
        image = np.ascontiguousarray(np.atleast_3d(getattr(data, name)())[:, :, ::-1])
        cv2.imwrite(str(folder / f"{name}.png"), image)
        for k in range(2):
            cv2.imwrite(str(folder / f"{name}-{k}.png"), askew(image, rng))
    return askew(np.ascontiguousarray(data.coffee()[:, :, ::-1]), rng)[60:340, 120:500]


def askew(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width = image.shape[:2]
    box = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    moved = np.float32(box + rng.uniform(-0.12, 0.12, (4, 2)) * [width, height])
    return cv2.warpPerspective(image, cv2.getPerspectiveTransform(box, moved), (width, height))


def tile(image: np.ndarray, text: str, outline: np.ndarray | None = None) -> np.ndarray:
    """A picture 300 pixels wide or high, with an outline drawn in it and a text below it."""
    if outline is not None:
        cv2.polylines(image, [np.int32(outline)], True, bgr(OUTLINE), 5, cv2.LINE_AA)
    scale = 300 / max(image.shape[:2])
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    canvas = np.full((334, 310, 3), 255, np.uint8)
    canvas[: small.shape[0], : small.shape[1]] = small
    place, color = (4, small.shape[0] + 22), (40, 40, 40)
    return cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, color, 1, cv2.LINE_AA)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("photos", type=utf8, nargs="*", help="a folder and a query; none: an example")
parser.add_argument("--out", type=utf8, default="answers.png")
args = parser.parse_args()
if len(args.photos) not in (0, 2):
    parser.error("give a folder and a query, or none")
with tempfile.TemporaryDirectory() as work:
    folder = Path(args.photos[0] if args.photos else work)
    query = cv2.imread(args.photos[1]) if args.photos else example(folder)
    if query is None:
        parser.error(f"cannot read {args.photos[1]} as an image")
    try:
        print(extract(folder, Path(work) / "features.h5"))
        index = Index.build(Path(work) / "features.h5")
    except ImportError as error:
        raise SystemExit(str(error)) from None
    corners = np.float64([[[0, 0], [1, 0], [1, 1], [0, 1]]]) * query.shape[1::-1]
    tiles = [tile(query, f"asked of {len(index.names)} images")]
    for hit in (hits := index.search(query, top=4)):
        outline = cv2.perspectiveTransform(corners, hit.H_0to1)[0] if hit.verified else None
        text = f"{hit.name}: {hit.inliers} inliers" + ("" if hit.verified else ", not it")
        tiles.append(tile(cv2.imread(str(folder / hit.name)), text, outline))
if not cv2.imwrite(args.out, np.hstack(tiles)):
    raise SystemExit(f"cannot write {args.out}")
print(f"{sum(hit.verified for hit in hits)} images show the query: {args.out}")
