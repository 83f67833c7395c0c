"""At home in programs for OpenCV and Kornia: their names, their factories, their images."""

import cv2
import numpy as np
import pytest

import kd_cv
from kd_cv import KDDescriptor, describe
from kd_cv.detector.orientation import dominant_angles, oriented
from kd_cv.whitening import save


def test_the_factory_of_sift_may_be_replaced(camera, monkeypatch):
    expected = KDDescriptor().detectAndCompute(camera, None)[1]
    monkeypatch.setattr(cv2, "SIFT_create", KDDescriptor)
    np.testing.assert_array_equal(cv2.SIFT_create().detectAndCompute(camera, None)[1], expected)
    few = cv2.SIFT_create(100, 3, 0.04, 10, 1.6)
    keypoints, rows = few.detectAndCompute(camera, None)
    assert len(keypoints) == len(rows) <= 100


@pytest.mark.parametrize("arguments", [(None,), (None, None)], ids=["without a mask", "with"])
def test_an_image_that_was_not_read_is_named(arguments):
    with pytest.raises(TypeError, match=r"got None: could the file be read\?"):
        KDDescriptor().detectAndCompute(*arguments)
    with pytest.raises(TypeError, match=r"needs a mask, as OpenCV's does: give None for none"):
        KDDescriptor().detectAndCompute(np.zeros((9, 9), np.uint8))


def test_angles_are_estimated_on_request_and_upright_by_default(photographs):
    image = photographs["astronaut"]
    matrix = cv2.getRotationMatrix2D((255.5, 255.5), 75, 1)
    turned = cv2.warpAffine(image, matrix, (512, 512))
    keypoints = cv2.GFTTDetector_create(300, minDistance=8).detect(image, None)
    inside = [k for k in keypoints if np.hypot(k.pt[0] - 255.5, k.pt[1] - 255.5) < 200]
    there = np.array([k.pt for k in inside]) @ matrix[:, :2].T + matrix[:, 2]
    seen = [cv2.KeyPoint(float(x), float(y), 3.0, -1, 0.01) for x, y in there]

    def right(kd):
        a, b = kd.compute(image, inside)[1], kd.compute(turned, seen)[1]
        return ((a @ b.T).argmax(axis=1) == np.arange(len(a))).mean()

    assert right(KDDescriptor()) < 0.2
    assert right(KDDescriptor(orient=True)) > 0.7
    kept, _ = KDDescriptor(orient=True).compute(image, inside)
    assert len(kept) == len(inside) and all(k.angle >= 0 for k in kept)
    assert all(k.angle == -1 for k in inside)
    assert all(k.angle == -1 for k in KDDescriptor().compute(image, inside)[0])


def test_given_angles_are_kept_and_the_dominant_one_is_the_detectors(camera, keypoints):
    kd = KDDescriptor(orient=True)
    np.testing.assert_array_equal(
        kd.compute(camera, keypoints)[1], KDDescriptor().compute(camera, keypoints)[1]
    )
    # What is handed back has an angle, and with it the same descriptors again.
    bare = [cv2.KeyPoint(*k.pt, k.size, -1, k.response, k.octave) for k in keypoints]
    with_angles, rows = kd.compute(camera, bare)
    np.testing.assert_array_equal(KDDescriptor().compute(camera, with_angles)[1], rows)
    for keypoint, row in zip(bare[:50], rows, strict=False):  # nor do they depend on the others
        np.testing.assert_array_equal(kd.compute(camera, [keypoint])[1][0], row)
    frames = kd.frames(keypoints)
    index, turned, _ = oriented(camera, frames)
    alone = np.flatnonzero(np.bincount(index) == 1)
    np.testing.assert_allclose(
        dominant_angles(camera, frames)[alone], turned[np.isin(index, alone), 3]
    )


def test_kornias_names_of_arguments_and_the_papers_of_whitenings():
    kornia = KDDescriptor(kernel_type="cart", output_dims=32, training_set="liberty")
    assert kornia.settings == KDDescriptor(kernel="cart", dim=32, weights="liberty").settings
    for name, ours in (("W_S", "ws"), ("W_UA", "wua"), ("lw", "ws"), ("pcawt", "wua")):
        assert np.array_equal(
            KDDescriptor(whitening=name).projection.A, KDDescriptor(whitening=ours).projection.A
        )
    with pytest.raises(TypeError, match="output_dims is another name of dim: give only one"):
        KDDescriptor(dim=3, output_dims=3)


def test_patches_of_the_other_shape_point_the_way():
    with pytest.raises(ValueError, match=r"take patches\[:, 0\], or give tensors .* to KDModule"):
        describe(np.zeros((5, 1, 32, 32), np.float32))
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"patches\[:, None\] makes them .*describe takes"):
        kd_cv.KDModule()(torch.zeros(5, 32, 32))


@pytest.mark.slow
def test_what_was_trained_comes_back_as_a_file(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    module = kd_cv.KDModule(kernel_type="concat", output_dims=96, trainable=True)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    patches = torch.rand(16, 1, 32, 32, generator=torch.manual_seed(0))
    before = module(patches).detach().numpy()
    (-(module(patches[:8]) * module(patches[8:])).sum()).backward()
    optimiser.step()
    trained = module(patches).detach().numpy()
    assert np.abs(trained - before).max() > 1e-3
    save(tmp_path / "trained.npz", {("concat", 32): module.as_whitening()})
    rows = describe(patches[:, 0].numpy(), weights=tmp_path / "trained.npz", dim=96)
    np.testing.assert_allclose(rows, trained, atol=1e-5)
    from kd_cv.cli import main

    assert main(["weights", str(tmp_path / "trained.npz")]) == 0
    said = capsys.readouterr().out
    assert "trained: ws, in a KDModule that began with" in said
    assert "trained_on" not in said  # those of the matrices for images, which are not in it
    with pytest.raises(ValueError, match="no matrix that could be trained"):
        kd_cv.KDModule(whitening=None).as_whitening()


def test_matrices_that_a_module_did_not_begin_with_are_refused():
    pytest.importorskip("torch")
    module = kd_cv.KDModule(kernel="polar", dim=16)
    module.kernel = "concat"
    with pytest.raises(ValueError, match="the matrices it is said to have begun with"):
        module.as_whitening()
