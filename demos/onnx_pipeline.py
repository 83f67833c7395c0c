"""Keypoints and descriptors by ONNX Runtime alone, without torch and kd_cv.

kd-cv export --pipeline --size 480x640 -o kd.onnx
python demos/onnx_pipeline.py kd.onnx left.jpg right.jpg
"""

import argparse

import cv2
import numpy as np

try:
    import onnxruntime
except ImportError:
    raise SystemExit("this demo needs onnxruntime: pip install onnxruntime") from None


def extract(session: onnxruntime.InferenceSession, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Keypoints (N, 4), x y size angle, in pixels of the file's image, and descriptors (N, D)."""
    gray = cv2.imread(path, cv2.IMREAD_GRAYSCALE)
    if gray is None:
        raise SystemExit(f"cannot read {path!r} as an image")
    height, width = session.get_inputs()[0].shape[2:]
    image = cv2.resize(gray, (width, height), interpolation=cv2.INTER_AREA)
    image = np.float32(image)[None, None] / 255
    keypoints, scores, descriptors = session.run(None, {"image": image})
    return keypoints[scores > 0], descriptors[scores > 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the file that kd-cv export --pipeline wrote")
    parser.add_argument("images", nargs=2, help="two photographs")
    args = parser.parse_args()
    session = onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"])
    (points0, rows0), (points1, rows1) = (extract(session, path) for path in args.images)
    matches = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(rows0, rows1)
    print(f"{len(points0)} and {len(points1)} keypoints, {len(matches)} mutual nearest neighbours")


if __name__ == "__main__":
    main()
