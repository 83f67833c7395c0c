"""The descriptor outside Python: TorchScript, torch.export, torch.compile, ONNX."""

import io
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv.descriptor.patches import extract_patches
from kd_cv.keypoints import from_keypoints

torch = pytest.importorskip("torch", minversion="2.13", reason="the extra export needs torch 2.13")

from kd_cv import KDModule  # noqa: E402
from kd_cv.nn import export  # noqa: E402
from kd_cv.nn.export import FramesModule, export_onnx  # noqa: E402
from kd_cv.nn.sampling import halved  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.usefixtures("one_torch_thread"),
]
BATCH = torch.export.Dim.DYNAMIC


@pytest.fixture(scope="module")
def patches(camera, keypoints):
    patches = torch.from_numpy(extract_patches(camera, from_keypoints(keypoints), 32))[:, None]
    patches[7] = 0.3
    return patches


@pytest.fixture(scope="module", params=[None, "ws", "pcasqrt"])
def kd(request, fitted):
    return KDModule(whitening=request.param, weights=fitted)


@pytest.fixture(scope="module")
def supervised(fitted):
    return KDModule(whitening="ws", weights=fitted)


def agree(a, b):
    assert a.shape == b.shape
    return (a - b).abs().max() < 1e-4 and not a[7].any()


# torch --------------------------------------------------------------------------------------------


def test_script(kd, patches):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(kd), file)
    file.seek(0)
    scripted = torch.jit.load(file)
    for batch in (patches, patches[:33], patches.double()):
        assert agree(scripted(batch).float(), kd(batch).float())
    assert scripted(patches[:0]).shape == (0, kd.dim)
    with pytest.raises(torch.jit.Error, match="patch_size=32"):
        scripted(torch.zeros(1, 1, 41, 41))


def test_trace_holds_for_other_batches(kd, patches):
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(kd, patches[:5])
    assert agree(traced(patches), kd(patches))


def test_export_has_a_dynamic_batch(kd, patches):
    program = torch.export.export(kd, (patches[:5],), dynamic_shapes=({0: BATCH},))
    assert agree(program.module()(patches), kd(patches))


def test_compile(supervised, patches):
    torch.compiler.reset()
    compiled = torch.compile(supervised, backend="aot_eager", fullgraph=True, dynamic=True)
    assert agree(compiled(patches), supervised(patches))
    x = patches.clone().requires_grad_()
    compiled(x).pow(3).sum().backward()
    y = patches.clone().requires_grad_()
    supervised(y).pow(3).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-3)


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_compile_to_machine_code(patches):
    torch.compiler.reset()
    kd = KDModule(kernel="cart", whitening=None)
    with torch.no_grad():
        assert agree(torch.compile(kd, fullgraph=True)(patches), kd(patches))


# Sampling inside ----------------------------------------------------------------------------------


def test_halved_is_pyrdown(camera):
    import cv2

    for shape in ((512, 512), (301, 20), (2, 7), (1, 1)):
        image = camera[: shape[0], : shape[1]].astype(np.float32)
        expected = cv2.pyrDown(image)
        ours = halved(torch.from_numpy(image)[None, None])[0, 0]
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scales", [1, 3])
def test_image_and_frames_give_the_rows_of_kddescriptor(camera, keypoints, fitted, scales):
    image = camera.astype(np.float32) / 255
    descriptor = KDDescriptor(whitening="ws", weights=fitted, scales=scales, magnification=10)
    _, expected = descriptor.compute(image, keypoints)
    frames = from_keypoints(keypoints)
    bad = [[np.nan, 5, 5, 5], [5, 5, 0, 5], [5, 5, -1, 5], [-500, 5, 5, 5], [5, 5, np.inf, 5]]
    frames = torch.from_numpy(np.concatenate([frames, bad])).float()
    module = FramesModule(descriptor.module(), magnification=10, scales=scales)
    rows = module(torch.from_numpy(image)[None, None], frames)
    assert not rows[-len(bad) :].any()
    distance = (rows[: -len(bad)] - torch.from_numpy(expected)).norm(dim=1)
    assert distance.max() < 1e-4


# ONNX ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def onnxruntime():
    pytest.importorskip("onnxscript")
    return pytest.importorskip("onnxruntime")


def test_onnx_of_patches(onnxruntime, supervised, fitted, patches, tmp_path):
    path = tmp_path / "kd.onnx"
    assert export_onnx(path, whitening="ws", weights=fitted) < 1e-4
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (patches, patches[:8]):
        (rows,) = session.run(["descriptors"], {"patches": batch.numpy()})
        assert agree(torch.from_numpy(rows), supervised(batch))
    assert [file.name for file in tmp_path.iterdir()] == ["kd.onnx"]


def test_onnx_of_an_image_and_frames(onnxruntime, fitted, camera, keypoints, tmp_path):
    path = tmp_path / "kd.onnx"
    assert export_onnx(path, image=True, magnification=10, whitening="ws", weights=fitted) < 1e-4
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    image = camera[:333, :444].astype(np.float32) / 255
    frames = from_keypoints(keypoints).astype(np.float32)
    (rows,) = session.run(None, {"image": image[None, None], "frames": frames})
    kd = KDDescriptor(whitening="ws", weights=fitted, magnification=10, drop=False)
    _, expected = kd.compute(image, keypoints)
    np.testing.assert_allclose(rows, expected, atol=1e-4)


def test_a_failed_export_leaves_no_file(tmp_path):
    path = tmp_path / "kd.onnx"
    path.write_text("mine")
    with pytest.raises(ValueError, match="image=True"):
        export_onnx(path, scales=3)
    with pytest.raises(ValueError, match="patch_size"):
        export_onnx(path, patch_size=5)
    assert path.read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="no directory"):
        export_onnx(tmp_path / "nowhere" / "kd.onnx", whitening=None)


def test_without_onnx_the_error_names_the_extra():
    program = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from kd_cv.nn.export import export_onnx; export_onnx('never.onnx')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install kd-cv[export]" in done.stderr


def test_an_onnx_file_that_differs_is_not_kept(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="the ONNX file differs from the module by"):
        export.export_onnx(tmp_path / "kd.onnx")
    assert not list(tmp_path.iterdir())


def test_settings_of_images_are_refused_for_patches(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match="magnification and scales need image=True or size"):
        export_onnx(tmp_path / "kd.onnx", scales=3)
