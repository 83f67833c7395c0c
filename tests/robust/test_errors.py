"""Error messages that no other test has reason to reach: each says what to do."""

import importlib
import os
import struct
import sys
import warnings
import zipfile
import zlib

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor, Whitening, match
from kd_cv.bench import compute, fresh
from kd_cv.bench.child import resident
from kd_cv.bench.measure import CannotMeasure
from kd_cv.cli.images import read_photo
from kd_cv.descriptor.spec import Spec
from kd_cv.evaluate import metrics
from kd_cv.evaluate.protocols import strips_of_sequence
from kd_cv.explain import Pixels
from kd_cv.fit import builders
from kd_cv.fit.matrices import describe_scene, fit_photos
from kd_cv.fit.surface import Camera, SurfaceMap
from kd_cv.io import archive, datasets
from kd_cv.io.archive import write_archive
from kd_cv.io.datasets import Scene, read_gray, read_sequence
from kd_cv.whitening.whitening import Statistics, balanced, load

# A package that is not installed ------------------------------------------------------------------


def call(module, function, *arguments):
    return lambda: getattr(importlib.import_module(module), function)(*arguments)


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("torch", call("kd_cv.evaluate.candidates", "kornia_patches", "SIFTDescriptor"), "torch"),
        ("torch", call("kd_cv.whitening.whitening", "load_pth", "mkd-concat-64.pth"), "torch"),
        ("skimage", call("kd_cv.cli.images", "example_pair"), "cli"),
        ("skimage", call("kd_cv.bench.material", "load_material"), "cli"),
        ("skimage", lambda: list(call("kd_cv.evaluate.protocols", "builtin_photos")()), "cli"),
        ("distributed", call("kd_cv.collection.cluster", "_distributed"), "cluster"),
        ("threadpoolctl", call("kd_cv.collection.cluster", "_threadpoolctl"), "cluster"),
        ("h5py", call("kd_cv.collection.extract", "_h5py"), "features"),
        ("faiss", call("kd_cv.collection.retrieval", "_faiss"), "retrieval"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, use, extra):
    monkeypatch.setitem(sys.modules, package, None)  # importing it now raises ImportError
    with pytest.raises(ImportError, match=rf"kd-cv\[{extra}\]"):
        use()


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("kornia", lambda: call("kd_cv.evaluate.candidates", "kornia_patches", "HardNet")()),
        ("kornia", lambda: call("kd_cv.nn.module", "KDFeature", 10)()),
        ("onnxruntime", lambda: call("kd_cv.nn.export", "export_onnx", "kd.onnx")()),
    ],
)
def test_the_same_beside_torch(monkeypatch, package, use):
    pytest.importorskip("torch")
    loaded = [name for name in sys.modules if name.startswith(f"{package}.")]
    for name in (package, *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"kd-cv\[(torch|export)\]"):
        use()


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("kd_cv.draw.plots", "matplotlib", "cli"),
        ("kd_cv.nn.module", "torch", "torch"),
        ("kd_cv.nn.lafs", "torch", "torch"),
        ("kd_cv.nn.sampling", "torch", "torch"),
    ],
)
def test_a_module_that_cannot_do_without_a_package_says_so(monkeypatch, module, package, extra):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"kd-cv\[{extra}\]"):
        importlib.import_module(module)


# Images whose header asks for more than OpenCV decodes --------------------------------------------


def test_a_photograph_of_absurd_size(tmp_path):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 65535, 65535, 8, 0, 0, 0, 0))
    content = header + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")
    path = tmp_path / "absurd.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(ValueError, match=r"absurd\.png: 65535 x 65535 pixels, at most"):
        read_photo(path)


def test_an_image_wider_than_opencv_decodes(tmp_path):
    width = 2_000_000
    header = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 24, 0, 3 * width, 0, 0, 0, 0)
    path = tmp_path / "wide.bmp"
    path.write_bytes(struct.pack("<2sIHHI", b"BM", 54 + 64, 0, 0, 54) + header + bytes(64))
    for read in (read_gray, read_photo):
        with pytest.raises(ValueError, match=r"wide\.bmp cannot be decoded"):
            read(path)


# Machines on which something cannot be measured ---------------------------------------------------


def test_one_core_has_no_two_threads(monkeypatch):
    monkeypatch.setattr(compute, "cores", lambda: 1)
    with pytest.raises(CannotMeasure, match="one core"):
        next(compute.two_threads(None, None, None))


def test_peak_memory_needs_proc(monkeypatch):
    monkeypatch.setattr(fresh.os, "access", lambda path, mode: False)
    with pytest.raises(CannotMeasure, match="/proc/self"):
        fresh.check_proc()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="not on Linux")
def test_a_field_of_proc_that_is_not_there():
    with pytest.raises(OSError, match="no VmNothing in"):
        resident("VmNothing")


# Arguments that do not fit together ---------------------------------------------------------------


def test_metrics_say_which_shape_is_wrong():
    two, three, rows = np.zeros((4, 2)), np.zeros((4, 3)), np.zeros(4, int)
    with pytest.raises(ValueError, match=r"distractors must be \(M, 2\), got \(4, 3\)"):
        metrics.retrieval(two, np.zeros((4, 1, 2)), three, rows, rows)
    with pytest.raises(ValueError, match=r"equal dimensions, got \(4, 2\) and \(4, 3\)"):
        metrics.pairwise_distances(two, three)
    with pytest.raises(ValueError, match=r"X0 must be \(N, D\), got shape \(4,\)"):
        metrics.pairwise_distances(rows, three)
    with pytest.raises(ValueError, match=r"must be \(N, 2\), got shape \(4, 3\)"):
        metrics.warp_points(three, np.eye(3))


def test_statistics_of_nothing():
    with pytest.raises(ValueError, match="no statistics were given"):
        balanced([])
    empty = Statistics(3)
    with pytest.raises(ValueError, match="no descriptors were given"):
        _ = empty.C
    with pytest.raises(ValueError, match="no matching pairs were given"):
        _ = empty.C_M
    with pytest.raises(TypeError, match="expected Statistics, got list"):
        Whitening.fit([])


def test_matrices_that_do_not_fit_together():
    mu, lam = np.zeros(3), np.ones(3)
    with pytest.raises(ValueError, match="U must have 1 to 3 columns"):
        Whitening(mu=mu, U=np.zeros((3, 0)), lam=lam)
    with pytest.raises(ValueError, match="mu_s is the mean of A_s, which is missing"):
        Whitening(mu=mu, U=np.eye(3), lam=lam, mu_s=mu)
    tiny = Whitening(mu=mu, U=np.eye(3), lam=np.full(3, 1e-300), beta_index=1)
    with pytest.raises(ValueError, match="leaves no finite 'w'"):
        tiny.projection("w", 3)


def test_damaged_statistics(tmp_path):
    zeros = {"mean": np.zeros(2), "scatter": np.zeros((2, 2)), "pair_scatter": np.zeros((2, 2))}
    meta = {"dim": 2, "count": 5, "pair_count": 0}
    damaged = [
        (zeros, {**meta, "count": -5}, "damaged statistics: count is -5"),
        ({**zeros, "mean": np.zeros(3)}, meta, "damaged statistics: expected finite arrays"),
    ]
    for arrays, said, message in damaged:
        write_archive(tmp_path / "s.npz", "statistics", arrays, said)
        with pytest.raises(ValueError, match=message):
            Statistics.load(tmp_path / "s.npz")


def test_a_file_of_matrices_with_an_array_too_many(tmp_path):
    write_archive(tmp_path / "w.npz", "whitening", {"stray": np.zeros(2)}, {"entries": {}})
    with pytest.raises(ValueError, match="its entries and its arrays do not agree"):
        load(tmp_path / "w.npz")


def test_scenes_without_views_and_patches_without_sides():
    with pytest.raises(ValueError, match="scene 'empty' has no views"):
        describe_scene(Scene("empty", ()), lambda image, frames: np.zeros((0, 238)))
    with pytest.raises(ValueError, match="2 patches need as many sides, got 1"):
        Pixels.of(np.zeros((2, 32, 32)), Spec(32))


def test_whitening_is_not_fitted_on_bare_patches(tmp_path):
    pytest.importorskip("typer")
    from kd_cv.cli.evaluate import _with_ws

    (tmp_path / "patches0000.bmp").write_bytes(b"")
    with pytest.raises(ValueError, match=r"--fit-ws takes photographs or sequences, .* patches"):
        _with_ws([], str(tmp_path), 128)


def test_a_feature_file_of_others(tmp_path):
    h5py = pytest.importorskip("h5py")
    from kd_cv.collection.extract import FeatureFile

    with (
        h5py.File(tmp_path / "other.h5", "w") as file,
        pytest.raises(ValueError, match=r"other\.h5 was not written by kd_cv"),
    ):
        FeatureFile(file)


def test_an_index_of_blank_images(tmp_path):
    pytest.importorskip("faiss")
    pytest.importorskip("h5py")
    from kd_cv.collection.extract import Extraction, extract
    from kd_cv.collection.retrieval import Index

    cv2.imwrite(str(tmp_path / "blank.png"), np.zeros((64, 64), np.uint8))
    extract(tmp_path, tmp_path / "features.h5", Extraction("sift", 10))
    with pytest.raises(ValueError, match=r"features\.h5 has no descriptors to index"):
        Index.build(tmp_path / "features.h5")


def seen_from_behind(shape):
    """A camera at the origin that looks along z, and is said to see a point behind it."""
    behind = np.array([[0.0, 0.0, -1.0]])
    return Camera(shape, lambda x: x, lambda x: x, np.eye(3), np.zeros(3), behind, np.zeros(1, int))


def test_a_point_behind_its_camera():
    with pytest.raises(ValueError, match="a point lies behind a camera"):
        SurfaceMap([seen_from_behind((10, 10))])


def test_a_photograph_that_changed_after_its_reconstruction(tmp_path, monkeypatch):
    for name in "abc":
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.zeros((40, 30), np.uint8))
    camera = seen_from_behind((20, 30))
    monkeypatch.setattr(builders, "reconstruct", lambda *arguments: None)
    monkeypatch.setattr(
        builders, "registered_views", lambda model, folder: ([camera], [folder / "a.png"])
    )
    with pytest.raises(ValueError, match=r"is \(40, 30\), the reconstruction saw \(20, 30\)"):
        builders.sfm_scene(tmp_path, tmp_path / "work")


def test_a_sequence_in_which_nothing_is_seen(tmp_path):
    for k in range(1, 4):
        cv2.imwrite(str(tmp_path / f"{k}.ppm"), np.zeros((64, 64, 3), np.uint8))
        np.savetxt(tmp_path / f"H_1_{k}", np.eye(3))
    with pytest.raises(ValueError, match="0 keypoints are seen in all images"):
        strips_of_sequence(read_sequence(tmp_path))


def test_extraction_of_no_descriptor_and_by_no_worker(tmp_path):
    pytest.importorskip("h5py")
    from kd_cv.collection.extract import Extraction, extract

    with pytest.raises(TypeError, match="descriptor must be a name or a KDDescriptor, got int"):
        Extraction(3)
    cv2.imwrite(str(tmp_path / "blank.png"), np.zeros((64, 64), np.uint8))
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        extract(tmp_path, tmp_path / "features.h5", Extraction("sift", 10), workers=0)


# Files of matrices and settings -------------------------------------------------------------------


def test_archives_out_of_proportion(tmp_path, monkeypatch):
    write_archive(tmp_path / "a.npz", "test", {"x": np.zeros(3), "y": np.zeros(3)}, {})
    with zipfile.ZipFile(tmp_path / "packed.npz", "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("x.npy", b"")
    with pytest.raises(ValueError, match="packed in another way than NumPy does"):
        archive.read_npz(tmp_path / "packed.npz", 1000)
    monkeypatch.setattr(archive, "_MAX_MEMBERS", 2)
    with pytest.raises(ValueError, match="3 members, more than 2"):
        archive.read_npz(tmp_path / "a.npz", 1000)
    with pytest.raises(ValueError, match="repeated members or more than 2"):
        archive.read_archive(tmp_path / "a.npz", "test")
    monkeypatch.setattr(archive, "_MAX_BYTES", 100)
    with pytest.raises(ValueError, match="bytes, more than 100"):
        archive.read_archive(tmp_path / "a.npz", "test")


def test_a_file_longer_than_its_kind(tmp_path):
    (tmp_path / "long.txt").write_bytes(bytes(10))
    with pytest.raises(ValueError, match="has 10 bytes, at most 9 are read"):
        datasets._read_bytes(tmp_path / "long.txt", 9)


# Arguments that are something else ----------------------------------------------------------------


def test_no_image():
    image = np.zeros((40, 40), np.uint8)
    with pytest.raises(TypeError, match=r"image0 must be one image, an array, got None"):
        match(None, image)
    with pytest.raises(TypeError, match=r"image1 must be one image, an array, got list"):
        match(image, [])


def test_no_tensor():
    torch = pytest.importorskip("torch")
    pytest.importorskip("kornia")
    from kd_cv import KDFeature, KDModule

    with pytest.raises(TypeError, match=r"patches must be a torch\.Tensor, got NoneType"):
        KDModule()(None)
    with pytest.raises(TypeError, match=r"images must be a torch\.Tensor or a list, got ndarray"):
        KDFeature(10)(torch.zeros(1, 1, 40, 40).numpy())


def test_more_dimensions_than_the_matrices_have():
    with pytest.raises(ValueError, match="dim must be an integer from 1 to 128, got 500"):
        KDDescriptor(dim=500)
    assert KDDescriptor(kernel="cart", dim=500).descriptorSize() == 63  # all there are


def test_a_point_that_is_none(capsys):
    pytest.importorskip("typer")
    from kd_cv.cli import main

    assert main(["explain", "--at", "nan", "1"]) == 2
    assert "--at must be two finite numbers, got nan 1.0" in capsys.readouterr().err


# Photographs that nothing can be fitted on --------------------------------------------------------


@pytest.mark.parametrize("pairs", ["none", "warp", "sfm"])
def test_photographs_without_use(tmp_path, pairs):
    if pairs == "sfm":
        pytest.importorskip("pycolmap")
    for name in "abc":
        path = tmp_path / f"{name}.png"
        if pairs == "sfm":  # nothing to see on any of them
            cv2.imwrite(str(path), np.full((64, 64), 128, np.uint8))
        else:
            path.write_bytes(b"no picture")
    with (
        warnings.catch_warnings(),
        pytest.raises(ValueError, match=r"none of the 3 photographs can be used: ."),
    ):
        warnings.simplefilter("ignore")
        fit_photos(tmp_path, pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pairs", "some"], "--pairs must be none, warp or sfm, got 'some'"),
        (["--workers", "2"], "--workers is for --scheduler local, got 2 without it"),
    ],
)
def test_options_of_fit(tmp_path, capsys, options, message):
    pytest.importorskip("typer")
    from kd_cv.cli import main

    for name in "abcd":
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.zeros((32, 32), np.uint8))
    code = main(["fit", str(tmp_path), "-o", str(tmp_path / "mine.npz"), *options])
    assert code == 2 and message in " ".join(capsys.readouterr().err.split())


def test_an_onnx_file_that_differs_is_not_kept(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from kd_cv.nn import export

    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="the ONNX file differs from the module by"):
        export.export_onnx(tmp_path / "kd.onnx")
    assert not list(tmp_path.iterdir())
