"""Error messages that no other test has reason to reach: each says what to do."""

import importlib
import os
import struct
import sys
import zlib

import pytest

from kd_cv.bench import compute, fresh
from kd_cv.bench.child import resident
from kd_cv.bench.measure import CannotMeasure
from kd_cv.cli.images import read_photo
from kd_cv.datasets import read_gray

# A package that is not installed ------------------------------------------------------------------


def call(module, function, *arguments):
    return lambda: getattr(importlib.import_module(module), function)(*arguments)


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("torch", call("kd_cv.candidates", "kornia_patches", "SIFTDescriptor"), "torch"),
        ("torch", call("kd_cv.whitening", "load_pth", "mkd-concat-64.pth"), "torch"),
        ("skimage", call("kd_cv.cli.images", "example_pair"), "cli"),
        ("skimage", call("kd_cv.bench.material", "load_material"), "cli"),
        ("skimage", lambda: list(call("kd_cv.evaluate", "builtin_photos")()), "cli"),
        ("distributed", call("kd_cv.cluster", "_distributed"), "cluster"),
        ("threadpoolctl", call("kd_cv.cluster", "_threadpoolctl"), "cluster"),
        ("h5py", call("kd_cv.extract", "_h5py"), "features"),
        ("faiss", call("kd_cv.retrieval", "_faiss"), "retrieval"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, use, extra):
    monkeypatch.setitem(sys.modules, package, None)  # importing it now raises ImportError
    with pytest.raises(ImportError, match=rf"kd-cv\[{extra}\]"):
        use()


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("kornia", lambda: call("kd_cv.candidates", "kornia_patches", "HardNet")()),
        ("kornia", lambda: call("kd_cv.module", "KDFeature", 10)()),
        ("onnxruntime", lambda: call("kd_cv.export", "export_onnx", "kd.onnx")()),
    ],
)
def test_the_same_beside_torch(monkeypatch, package, use):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"kd-cv\[(torch|export)\]"):
        use()


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("kd_cv.plots", "matplotlib", "cli"),
        ("kd_cv.module", "torch", "torch"),
        ("kd_cv.lafs", "torch", "torch"),
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
    with pytest.raises(ValueError, match=r"absurd\.png cannot be decoded: .*PIXELS"):
        read_photo(path)


def test_an_image_wider_than_opencv_decodes(tmp_path):
    width = 2_000_000
    header = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 24, 0, 3 * width, 0, 0, 0, 0)
    path = tmp_path / "wide.bmp"
    path.write_bytes(struct.pack("<2sIHHI", b"BM", 54 + 64, 0, 0, 54) + header + bytes(64))
    with pytest.raises(ValueError, match=r"wide\.bmp cannot be decoded"):
        read_gray(path)


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
