"""At home in Kornia: its descriptor, its LAFs, its pipelines."""

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor, describe
from kd_cv.descriptor.frames import describable
from kd_cv.descriptor.patches import extract_patches
from kd_cv.keypoints import from_keypoints

torch = pytest.importorskip("torch")
KF = pytest.importorskip("kornia.feature")

from kornia.geometry import RANSAC, ScalePyramid  # noqa: E402
from kornia.geometry.transform import warp_perspective  # noqa: E402

from kd_cv import KDFeature, KDModule  # noqa: E402
from kd_cv.nn.lafs import (  # noqa: E402
    frames_from_lafs,
    lafs_from_keypoints,
    round_lafs,
)
from kd_cv.nn.sampling import pyramid_of, sample, sides  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
CENTRES = ((150.3, 140.7, 33.0), (90.0, 201.5, 271.0), (200.2, 99.9, 0.0))
FRAMES = np.array([[x, y, size, a] for x, y, a in CENTRES for size in (1.0, 2.7, 5.0, 8.0)])


def as_batch(*images):
    """uint8 arrays to (B, 1, H, W) or (B, 3, H, W)."""
    planes = [image[None] if image.ndim == 2 else image.transpose(2, 0, 1) for image in images]
    return torch.from_numpy(np.stack(planes)).float() / 255


def lafs_of(frames, magnification=15.0):
    return round_lafs(torch.from_numpy(frames), magnification).float()


@pytest.fixture(scope="module")
def image(camera):
    return as_batch(camera)


@pytest.fixture(scope="module")
def feature(fitted):
    return KDFeature(200, descriptor=KDModule(whitening="ws", weights=fitted))


# The same descriptor as Kornia's ------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["concat", "polar", "cart"])
@pytest.mark.parametrize("P", [32, 64])
def test_raw_vectors_equal_mkd(camera, keypoints, kernel, P):
    patches = torch.from_numpy(extract_patches(camera, from_keypoints(keypoints[:60]), P))[:, None]
    with torch.no_grad():
        expected = KF.MKDDescriptor(P, kernel, whitening=None)(patches)
        rows = KDModule(P, kernel, whitening=None)(patches)
    assert (rows - expected).abs().max() < 1e-4


@pytest.fixture(scope="module")
def pth(fitted, tmp_path_factory):
    """A file like the authors' mkd-concat-64.pth."""
    path = tmp_path_factory.mktemp("weights") / "mkd-concat-64.pth"
    lam = torch.from_numpy(fitted.lam.copy()).float()
    mean, U, A_s = (torch.from_numpy(np.array(a)) for a in (fitted.mu, fitted.U, fitted.A_s))
    model = {
        "pca": {"mean": mean, "eigvecs": U, "eigvals": lam},
        "lw": {"mean": mean + 0.01, "eigvecs": A_s, "eigvals": lam},
    }
    torch.save({"liberty": model}, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("whitening", ["lw", "pca", "pcaws", "pcawt"])
def test_the_authors_matrices_give_kornias_vectors(camera, keypoints, pth, whitening, monkeypatch):
    # Kornia downloads the file; here it gets the one above.
    load = lambda url, **_: torch.load(pth, weights_only=True)  # noqa: E731
    monkeypatch.setattr("kornia.feature.mkd.load_state_dict_from_url", load)
    patches = torch.from_numpy(extract_patches(camera, from_keypoints(keypoints), 32))[:, None]
    with torch.no_grad():
        expected = KF.MKDDescriptor(32, "concat", whitening, "liberty", 128)(patches)
        rows = KDModule(32, whitening=whitening, weights=pth)(patches)
    # The slope of the square root of "pca" at 0 magnifies what float32 rounds.
    tolerance = 1e-3 if whitening == "pca" else 1e-4
    assert (rows - expected).abs().max() < tolerance


# LAFs ---------------------------------------------------------------------------------------------


def test_keypoints_and_lafs_round_trip(keypoints):
    for magnification in (6.0, "kornia", 18.0):
        lafs = lafs_from_keypoints(keypoints, magnification)
        assert lafs.shape == (1, len(keypoints), 2, 3) and lafs.dtype == torch.float32
        back = frames_from_lafs(lafs, magnification)
        np.testing.assert_allclose(back[:, :3], from_keypoints(keypoints)[:, :3], rtol=1e-6)
        turn = back[:, 3] - from_keypoints(keypoints)[:, 3]
        np.testing.assert_allclose((turn + 180) % 360 - 180, 0, atol=1e-4)


def test_lafs_are_kornias():
    lafs = lafs_of(FRAMES, 12.0)
    np.testing.assert_allclose(KF.get_laf_center(lafs)[0], FRAMES[:, :2], rtol=1e-6)
    np.testing.assert_allclose(KF.get_laf_scale(lafs).flatten(), 6 * FRAMES[:, 2], rtol=1e-6)
    turn = KF.get_laf_orientation(lafs).flatten().numpy() + FRAMES[:, 3]  # the other way round
    np.testing.assert_allclose((turn + 180) % 360 - 180, 0, atol=1e-4)


def test_upright_keypoints_and_affine_lafs():
    upright = np.array([[10.0, 20.0, 4.0, -1.0]])
    np.testing.assert_allclose(frames_from_lafs(lafs_of(upright)), [[10, 20, 4, 0]], rtol=1e-6)
    affine = torch.tensor([[[12.0, 0.0, 5.0], [3.0, 27.0, 6.0]]])  # area of a circle of scale 18
    np.testing.assert_allclose(frames_from_lafs(affine, 12.0), [[5, 6, 3, 0]])


def test_empty_and_wrong_lafs():
    assert frames_from_lafs(lafs_from_keypoints([])).shape == (0, 4)
    with pytest.raises(ValueError, match=r"got \[2, 5, 2, 3\]"):
        frames_from_lafs(torch.zeros(2, 5, 2, 3))


@pytest.mark.parametrize("P", [32, 33])
def test_both_samplers_look_at_the_same_points(P):
    """On ramps each pixel of a patch says where it was read: half a pixel would show."""
    y, x = np.mgrid[:301, :419].astype(np.float32) / 512
    i = np.arange(P) - (P - 1) / 2
    cx, cy, size, angle = FRAMES.T[:, :, None, None]
    u, v = 12 * size / P * i[None, None, :], 12 * size / P * i[None, :, None]
    cos, sin = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    for ramp, expected in ((x, cx + cos * u - sin * v), (y, cy + sin * u + cos * v)):
        lafs = lafs_of(FRAMES, 12.0)
        theirs = KF.extract_patches_from_pyramid(torch.from_numpy(ramp)[None, None], lafs, P)
        np.testing.assert_allclose(512 * theirs[0, :, 0], expected, atol=1e-3)
        np.testing.assert_allclose(
            512 * extract_patches(ramp, FRAMES, P, 12.0), expected, atol=1e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("scales", [1, 3])
def test_through_lafs_and_through_keypoints(photographs, fitted, similarity, scales):
    """The same rows, so the same matches of all keypoints between a photograph and its warp."""
    kd = KDDescriptor(whitening="ws", weights=fitted, scales=scales)
    feature = KDFeature(descriptor=kd.module(), scales=scales)
    camera = photographs["camera"]
    rows, others, in_floats = [], [], []
    for gray in (camera, similarity[0](camera, 40.0, 1.3)[0]):
        keypoints = cv2.SIFT_create(600).detect(gray, None)
        rows.append(kd.compute(gray, keypoints)[1])
        in_floats.append(kd.compute(gray.astype(np.float32) / 255, keypoints)[1])
        others.append(feature.describe(as_batch(gray), lafs_from_keypoints(keypoints))[0].numpy())
        np.testing.assert_allclose(others[-1], in_floats[-1], atol=1e-4)
    # What remains is rounding: the pyramid of an 8-bit image is 8-bit.
    nearest, theirs = ((a @ b.T).argmax(axis=1) for a, b in (rows, others))
    assert (nearest == theirs).mean() >= 0.97


@pytest.mark.slow
def test_affine_lafs_are_sampled_as_kornia_does(image):
    """Where both read the image itself, mirrored and stretched; beyond its border ours fades."""
    shapes = [[[9.0, 4.0], [-3.0, 12.0]], [[8.0, 0.0], [0.0, -14.0]], [[6.0, 14.0], [-5.0, 3.0]]]
    centres = torch.tensor([[250.3, 200.6], [12.0, 300.2], [488.9, 12.5]])[None, :, :, None]
    lafs = torch.cat([torch.tensor(shapes)[None], centres], dim=-1)
    expected = KF.extract_patches_from_pyramid(image, lafs, 32)[:, :, 0]
    patches = sample(pyramid_of(image[:, 0], 3), lafs, 32)
    torch.testing.assert_close(patches, expected, atol=1e-4, rtol=0)


def test_lafs_without_a_patch_give_zero_rows(feature, image):
    bad = torch.zeros(1, 6, 2, 3)
    bad[..., :2] = 10 * torch.eye(2)
    bad[..., 2] = 100.0
    bad[0, 0] = 0.0
    bad[0, 1, 0, 0] = torch.nan
    bad[0, 2, 1, 2] = torch.inf
    bad[0, 3, 0, 2] = -50.0
    bad[0, 4, 1] = bad[0, 4, 0]  # a line
    x, lafs = image.clone().requires_grad_(), bad.requires_grad_()
    rows = feature.describe(x, lafs)
    rows.pow(3).sum().backward()
    assert not rows[0, :5].any() and rows[0, 5].any()
    assert x.grad.isfinite().all() and not lafs.grad[0, :5].any() and lafs.grad[0, 5].any()


# Kornia's pipelines -------------------------------------------------------------------------------


def test_laf_descriptor(image, camera, keypoints, feature):
    kd, lafs = feature.descriptor, lafs_from_keypoints(keypoints)
    rows = KF.LAFDescriptor(kd, patch_size=32)(image, lafs)
    assert rows.shape == (1, len(keypoints), 128)
    patches = KF.extract_patches_from_pyramid(image, lafs, 32)[0]
    torch.testing.assert_close(rows[0], kd(patches))
    torch.testing.assert_close(rows, KF.get_laf_descriptors(image, lafs, kd, patch_size=32))
    with pytest.warns(UserWarning, match="no keypoints"):
        assert KF.LAFDescriptor(kd, 32)(image, lafs[:, :0]).shape == (1, 0, 128)
    with pytest.raises(ValueError, match=r"LAFDescriptor\(kd, patch_size=32\)"):
        KF.LAFDescriptor(kd, patch_size=41)(image, lafs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_laf_descriptor_in_other_types(image, keypoints, feature, dtype):
    lafs = lafs_from_keypoints(keypoints)
    patches = KF.extract_patches_from_pyramid(image.to(dtype), lafs, 32)[0]
    rows = KF.LAFDescriptor(feature.descriptor, patch_size=32).to(dtype)(image.to(dtype), lafs)
    assert rows.dtype == dtype
    assert (rows[0].float() - feature.descriptor(patches.float())).norm(dim=1).max() < 0.01


def gftt():
    pyramid = ScalePyramid(3, 1.6, 32)
    return KF.ScaleSpaceDetector(50, resp_module=KF.CornerGFTT(), scale_pyr_module=pyramid)


def multiresolution():
    return KF.MultiResolutionDetector(KF.BlobHessian(), 50)


@pytest.mark.slow
@pytest.mark.parametrize("make", [gftt, multiresolution])
def test_local_feature_with_any_detector(image, feature, make):
    kd, detector = feature.descriptor, make().eval()
    local = KF.LocalFeature(detector, KF.LAFDescriptor(kd, patch_size=32), scaling_coef=2.0)
    seen = image[..., :320, 100:420]
    with torch.no_grad():
        expected = local(seen)
        found = KDFeature(detector=detector, descriptor=kd, magnification=12)(seen)
    filled = KF.laf_is_filled(found[0])[0]
    assert filled.sum() > 20
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(ours[0][filled], theirs[0][filled], atol=1e-4, rtol=1e-4)
    # The samplers differ, in the level of the pyramid that they read and beyond the border.
    inside = filled & KF.laf_is_inside_image(found[0], seen)[0]
    assert inside.sum() > 20
    distance = (found[2] - expected[2])[0][inside].norm(dim=1)
    assert distance.max() < 0.7 and distance.median() < 0.3


# KDFeature ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_batches_gray_and_colour(feature, photographs):
    colour = np.stack([photographs[n][:256, :256] for n in ("camera", "brick", "grass")], axis=-1)
    rgb = as_batch(colour, colour[::-1].copy())
    with torch.no_grad():
        lafs, responses, rows = feature(rgb)
        assert (lafs.shape, responses.shape) == ((2, 200, 2, 3), (2, 200))
        assert rows.shape == (2, 200, 128)
        weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
        gray = feature((rgb * weights).sum(1, keepdim=True))
    torch.testing.assert_close(lafs, gray[0], atol=1e-2, rtol=1e-3)
    assert (rows - gray[2]).norm(dim=-1).median() < 1e-3


def test_slots_without_a_detection_are_zero(feature):
    image = torch.zeros(1, 1, 96, 96)
    image[..., 40:56, 41:52] = 1.0  # a blob without symmetry: no two responses tie
    image[..., 44:50, 45:56] = 0.6
    with torch.no_grad():
        lafs, responses, rows = feature(image)
        blank = feature(torch.zeros(1, 1, 96, 96))
    filled = KF.laf_is_filled(lafs)[0]
    assert 0 < filled.sum() < 200
    assert not rows[0][~filled].any() and not responses[0][~filled].any()
    assert rows[0][filled].norm(dim=1).min() > 0.99
    assert not blank[2].any() and blank[2].shape == (1, 200, 128)


def test_magnification_upright_and_detector(fitted, image):
    kd = KDModule(whitening="ws", weights=fitted)
    small = image[..., :200, :200]
    with torch.no_grad():
        lafs, _, _ = KDFeature(50, descriptor=kd, upright=True, magnification=12)(small)
        larger, _, _ = KDFeature(50, descriptor=kd, upright=True, magnification=18)(small)
    filled = KF.laf_is_filled(lafs)[0]
    assert not lafs[0, :, 0, 1].any()
    torch.testing.assert_close(larger[0, :, :, :2], 1.5 * lafs[0, :, :, :2])
    torch.testing.assert_close(larger[0, filled, :, 2], lafs[0, filled, :, 2])
    with pytest.raises(ValueError, match="upright"):
        KDFeature(detector=torch.nn.Identity(), upright=True)


@pytest.mark.parametrize("scales", [1, (0.75, 1.0, 1.5)])
def test_chunks_change_nothing(fitted, image, keypoints, scales):
    kd, lafs = KDModule(whitening="ws", weights=fitted), lafs_from_keypoints(keypoints)
    images, lafs = torch.cat([image, image.flip(-1)]), torch.cat([lafs, lafs.flip(1)])[:, :90]
    whole = KDFeature(descriptor=kd, scales=scales).describe(images, lafs)
    parts = KDFeature(descriptor=kd, scales=scales, chunk=100).describe(images, lafs)
    assert whole.shape == (2, 90, 128)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)
    assert KDFeature(descriptor=kd).describe(images, lafs[:, :0]).shape == (2, 0, 128)


def test_lists_of_different_images(feature, photographs):
    images = [as_batch(photographs[n])[0, :, :s, :] for n, s in (("camera", 200), ("coins", 150))]
    mask = torch.zeros(1, 200, 512)
    mask[:, :, :256] = 1
    with torch.no_grad():
        lafs, responses, rows = feature(images, [mask, None])
        alone = feature(images[1][None])
    assert [len(part) for part in (lafs, responses, rows)] == [2, 2, 2]
    assert [len(r) for r in rows] == [len(r) for r in responses] == [len(r) for r in lafs]
    torch.testing.assert_close(rows[1], alone[2][0][KF.laf_is_filled(alone[0])[0]])
    assert len(rows[0]) > 0 and lafs[0][:, 0, 2].max() < 257
    with pytest.raises(ValueError, match=r"\(C, H, W\)"):
        feature([images[0][None]])
    assert feature([]) == ([], [], [])


def test_images_of_a_wrong_shape_or_type_are_refused(feature):
    for wrong in (torch.zeros(1, 2, 64, 64), torch.zeros(64, 64), torch.zeros(1, 1, 9, 9).byte()):
        with pytest.raises(ValueError, match=r"\(B, 1, H, W\)"):
            feature(wrong)
    with pytest.raises(ValueError, match="chunk"):
        KDFeature(chunk=0)


def test_gradients_reach_the_image(feature, image, keypoints):
    x, lafs = image.clone().requires_grad_(), lafs_from_keypoints(keypoints[:20]).requires_grad_()
    feature.describe(x, lafs).pow(3).sum().backward()
    for leaf in (x, lafs):
        assert leaf.grad.isfinite().all() and leaf.grad.abs().max() > 0


@pytest.mark.slow
def test_lafs_are_described_on_their_device(fitted):
    """Operations of the meta device and the CPU do not mix."""
    kd = KDModule(whitening="ws", weights=fitted).to("meta")
    x = torch.empty(2, 3, 99, 77, device="meta", requires_grad=True)
    rows = KDFeature(descriptor=kd, scales=3).describe(x, torch.empty(2, 700, 2, 3, device="meta"))
    rows.sum().backward()
    assert (rows.shape, rows.device.type, x.grad.shape) == ((2, 700, 128), "meta", x.shape)


def test_gradients_keep_the_patches_and_little_else(feature, image, keypoints):
    x, lafs = image.clone().requires_grad_(), lafs_from_keypoints(keypoints)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        feature.describe(x, lafs)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    patches = 4 * 32 * 32 * lafs.shape[1]
    assert patches < sum(storages.values()) < 6 * patches


# Matching in torch --------------------------------------------------------------------------------

H_0to1 = torch.tensor([[[0.9, 0.17, 10.0], [-0.16, 0.95, 60.0], [1e-4, 5e-5, 1.0]]])


@pytest.mark.slow
def test_from_images_to_a_homography_without_leaving_torch(fitted, image):
    feature = KDFeature(400, descriptor=KDModule(whitening="ws", weights=fitted))
    other = warp_perspective(image, H_0to1, image.shape[-2:])
    matcher = KF.LocalFeatureMatcher(feature, KF.DescriptorMatcher("smnn", 0.9))
    with torch.no_grad():
        found = matcher({"image0": image, "image1": other})
    torch.manual_seed(0)
    estimate, inliers = RANSAC("homography", inl_th=2.0)(found["keypoints0"], found["keypoints1"])
    assert inliers.sum() > 60
    corners = torch.tensor([[0.0, 0.0], [511.0, 0.0], [511.0, 511.0], [0.0, 511.0]])
    homogeneous = torch.cat([corners, torch.ones(4, 1)], dim=1)
    moved = [homogeneous @ H.reshape(3, 3).T for H in (estimate, H_0to1)]
    error = (moved[0][:, :2] / moved[0][:, 2:] - moved[1][:, :2] / moved[1][:, 2:]).norm(dim=1)
    assert error.max() < 4


def test_match_snn_takes_the_descriptors(image):
    sharp = image[0, :, 50:250, 150:350]
    soft = torch.nn.functional.avg_pool2d(sharp, 3, stride=1, padding=1)
    with torch.no_grad():
        lafs, _, rows = KDFeature(200)([sharp, 0.5 * soft])
    distances, matches = KF.match_snn(*rows, 0.8)
    assert len(matches) > 30 and distances.shape == (len(matches), 1)
    points = [KF.get_laf_center(part[None])[0] for part in lafs]
    moved = (points[0][matches[:, 0]] - points[1][matches[:, 1]]).norm(dim=1)
    assert (moved < 2).float().mean() > 0.95


def test_default_module_describes_like_describe(camera, image, keypoints):
    patches = extract_patches(camera.astype(np.float32) / 255, from_keypoints(keypoints), 32)
    rows = KDFeature().describe(image, lafs_from_keypoints(keypoints))[0].numpy()
    np.testing.assert_allclose(rows, describe(patches), atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_of_other_types(feature, image, keypoints, dtype):
    seen, lafs = image.to(dtype), lafs_from_keypoints(keypoints)
    rows = feature.describe(seen, lafs)
    assert rows.dtype == dtype
    assert (rows.float() - feature.describe(seen.float(), lafs)).norm(dim=-1).max() < 0.01


def test_what_can_be_described_is_the_same_in_torch():
    lengths = np.array([2.0**k for k in (-30, -25, -23, 0, 5, 23, 25, 30)] + [0.0, np.inf, np.nan])
    places = [(50.0, 40.0), (-3.0, 40.0), (-30.0, 40.0), (50.0, 1e30), (np.nan, 40.0)]
    frames = np.array(
        [(x, y, side, angle) for side in lengths for x, y in places for angle in (-1.0, 0.0, 45.0)]
    )
    expected = describable(frames, (80, 100), 1.0)
    lafs = round_lafs(torch.from_numpy(frames), 1.0)
    assert (sides(lafs, (80, 100))[0] > 0).tolist() == expected.tolist()
    assert 0 < expected.sum() < len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"scales": 3}, {"upright": True}])
@pytest.mark.parametrize("whitening", ["ws", "pcasqrt", None])
def test_round_lafs_are_sampled_and_described_in_one_pass(
    image, fitted, monkeypatch, settings, whitening
):
    """The compiled pass gives the rows of torch's sampling and the module, and does neither."""
    from kd_cv.nn import feature as of_feature

    kd = KDModule(whitening=whitening, weights=fitted)
    feature = KDFeature(60, descriptor=kd, **settings)
    small = image[..., :200, :240]
    with torch.no_grad():
        with monkeypatch.context() as patched:
            patched.setattr(of_feature, "is_round", lambda lafs: False)
            expected = feature(small)
        monkeypatch.setattr(of_feature, "sample_scales", None)
        monkeypatch.setattr(KDModule, "pooled", None)
        lafs, responses, rows = feature(small)
    assert torch.equal(lafs, expected[0]) and torch.equal(responses, expected[1])
    torch.testing.assert_close(rows, expected[2], rtol=0, atol=1e-4)
    sheared = lafs.clone()
    sheared[..., 0, 1] += 0.2 * sheared[..., 0, 0]
    monkeypatch.undo()
    assert not of_feature.is_round(sheared)
    assert not torch.allclose(feature.describe(small, sheared), rows, atol=0.01)
