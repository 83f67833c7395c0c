"""A program of the OpenCV tutorials runs unchanged with KDDescriptor where SIFT stood."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor

pytestmark = pytest.mark.slow

MIN_MATCH_COUNT = 10


def tutorial(create, img1, img2, matcher):
    """OpenCV's "Feature Matching + Homography to find Objects", as its page has it."""
    # Initiate SIFT detector
    sift = create()

    # find the keypoints and descriptors with SIFT
    kp1, des1 = sift.detectAndCompute(img1, None)
    kp2, des2 = sift.detectAndCompute(img2, None)

    if matcher == "flann":
        FLANN_INDEX_KDTREE = 1
        index_params = dict(algorithm=FLANN_INDEX_KDTREE, trees=5)
        search_params = dict(checks=50)
        flann = cv2.FlannBasedMatcher(index_params, search_params)
        matches = flann.knnMatch(des1, des2, k=2)
    else:
        bf = cv2.BFMatcher()
        matches = bf.knnMatch(des1, des2, k=2)

    # store all the good matches as per Lowe's ratio test.
    good = []
    for m, n in matches:
        if m.distance < 0.7 * n.distance:
            good.append(m)

    assert len(good) > MIN_MATCH_COUNT
    src_pts = np.float32([kp1[m.queryIdx].pt for m in good]).reshape(-1, 1, 2)
    dst_pts = np.float32([kp2[m.trainIdx].pt for m in good]).reshape(-1, 1, 2)
    M, mask = cv2.findHomography(src_pts, dst_pts, cv2.RANSAC, 5.0)
    matchesMask = mask.ravel().tolist()

    draw_params = dict(
        matchColor=(0, 255, 0),
        singlePointColor=None,
        matchesMask=matchesMask,
        flags=2,
    )
    img3 = cv2.drawMatches(img1, kp1, img2, kp2, good, None, **draw_params)
    return M, img3


@pytest.fixture(scope="module")
def scene(photographs):
    """A photograph, its warped, darkened, noisy copy, and the homography."""
    image = photographs["astronaut"]
    H = np.array([[0.85, -0.25, 90.0], [0.2, 0.9, 10.0], [2e-4, 1e-4, 1.0]])
    copy = cv2.warpPerspective(cv2.GaussianBlur(image, (0, 0), 0.6), H, (512, 512))
    noise = np.random.default_rng(1).normal(0, 5, copy.shape)
    return image, np.clip(0.5 * copy + 10 + noise, 0, 255).astype(np.uint8), H


@pytest.mark.parametrize("matcher", ["brute force", "flann"])
@pytest.mark.parametrize(
    "create", [cv2.SIFT_create, KDDescriptor, KDDescriptor.create], ids=["SIFT", "KD", "KD.create"]
)
def test_tutorial(scene, create, matcher):
    image, copy, H = scene
    cv2.setRNGSeed(0)
    M, canvas = tutorial(create, image, copy, matcher)
    assert canvas.shape == (512, 1024, 3)
    corners = np.float32([[0, 0], [512, 0], [512, 512], [0, 512]]).reshape(-1, 1, 2)
    error = cv2.perspectiveTransform(corners, M) - cv2.perspectiveTransform(corners, H)
    assert np.linalg.norm(error, axis=2).max() < 2


def test_tutorial_with_bytes(scene):
    image, copy, H = scene
    M, _ = tutorial(lambda: KDDescriptor(descriptor_type=cv2.CV_8U), image, copy, "brute force")
    corners = np.float32([[0, 0], [512, 0], [512, 512], [0, 512]]).reshape(-1, 1, 2)
    error = cv2.perspectiveTransform(corners, M) - cv2.perspectiveTransform(corners, H)
    assert np.linalg.norm(error, axis=2).max() < 2


def test_tutorial_of_detect_then_compute_and_draw(scene):
    """OpenCV's "Introduction to SIFT" and the cross-checked matches of "Feature Matching"."""
    image, copy, _ = scene
    for create in (cv2.SIFT_create, KDDescriptor):
        sift = create()
        kp = sift.detect(image, None)
        flags = cv2.DRAW_MATCHES_FLAGS_DRAW_RICH_KEYPOINTS
        assert cv2.drawKeypoints(image, kp, None, flags=flags).shape == (512, 512, 3)
        kp, des = sift.compute(image, kp)
        assert des.shape == (len(kp), sift.descriptorSize())
        kp2, des2 = sift.detectAndCompute(copy, None)
        bf = cv2.BFMatcher(sift.defaultNorm(), crossCheck=True)
        matches = sorted(bf.match(des, des2), key=lambda x: x.distance)
        img3 = cv2.drawMatches(image, kp, copy, kp2, matches[:10], None, flags=2)
        assert img3.shape == (512, 1024, 3)
        pairs = cv2.BFMatcher().knnMatch(des, des2, k=2)
        good = [[m] for m, n in pairs if m.distance < 0.75 * n.distance]
        drawn = cv2.drawMatchesKnn(image, kp, copy, kp2, good, None, flags=2)
        assert drawn.shape == (512, 1024, 3) and len(good) > 20


@pytest.mark.parametrize(
    "refused",
    [
        lambda kd, image: cv2.AffineFeature_create(kd),
        lambda kd, image: cv2.BOWImgDescriptorExtractor(kd, cv2.BFMatcher()),
        lambda kd, image: cv2.detail.computeImageFeatures2(kd, image),
    ],
    ids=["AffineFeature_create", "BOWImgDescriptorExtractor", "computeImageFeatures2"],
)
def test_what_a_class_of_cpp_cannot_take_is_refused_and_documented(refused, camera, request):
    name = request.node.callspec.id
    if not (hasattr(cv2, name) or hasattr(cv2.detail, name)):
        pytest.skip(f"this OpenCV has no {name}")
    with pytest.raises((TypeError, cv2.error)):
        refused(KDDescriptor(), camera)
    page = Path(__file__).parents[2] / "docs/swap.md"
    if page.exists():  # in the source tree
        assert name in page.read_text(encoding="utf-8")


def test_a_kd_tree_takes_floats_only_and_distances_are_those_of_unit_vectors(camera):
    tree = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 2}, {"checks": 20})
    _, rows = KDDescriptor(100).detectAndCompute(camera, None)
    assert all(0 <= m.distance <= 2 for m in tree.match(rows, rows[::-1].copy()))
    _, small = KDDescriptor(100, descriptor_type=cv2.CV_8U).detectAndCompute(camera, None)
    with pytest.raises(cv2.error):
        tree.match(small, small)
