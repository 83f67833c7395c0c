"""`KDFeature` on devices other than the CPU, without one: no host copies, one graph."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.13")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from kd_cv import KDFeature  # noqa: E402
from kd_cv.nn.detector import DoGDetector  # noqa: E402

MOST = 1500
#: Operations that make a tensor without another one to take the device from.
MAKERS = (
    "arange",
    "empty",
    "eye",
    "full",
    "linspace",
    "ones",
    "rand",
    "randn",
    "zeros",
    "scalar_tensor",
)
#: Operations that wait for the device, or whose shape depends on the data.
WAITING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "is_nonzero")


class Operations(TorchDispatchMode):
    """Names of all operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def image(camera):
    return torch.from_numpy(camera[:160, :200].astype(np.float32) / 255)[None, None]


def count(batch):
    """Operations on the meta device, which has no values: a look at them is an error."""
    feature, images = KDFeature(2000).to("meta"), torch.empty(batch, 1, 480, 640, device="meta")
    with torch.no_grad(), Operations() as operations:
        lafs, responses, descriptors = feature(images)
    assert {t.device.type for t in (lafs, responses, descriptors)} == {"meta"}
    assert not set(operations.names) & set(WAITING + MAKERS)
    return len(operations.names)


def test_operations_without_host_copies():
    one = count(1)
    assert one <= MOST
    assert count(8) <= 1.1 * one


@pytest.mark.slow
def test_the_exported_graph_has_fixed_shapes_and_no_device():
    nodes = []
    for batch in (1, 8):
        with torch.no_grad():
            program = torch.export.export(KDFeature(2000), (torch.rand(batch, 1, 480, 640),))
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        names = {str(node.target).split(".")[1] for node in calls if "aten" in str(node.target)}
        assert not names & set(WAITING + MAKERS)
        nodes.append(len(calls))
    assert nodes[0] <= MOST and nodes[1] <= 1.1 * nodes[0]


@pytest.mark.slow
def test_compile_agrees_with_eager(image):
    feature = KDFeature(60)
    expected = feature(image)
    torch.compiler.reset()
    with torch.no_grad():
        found = torch.compile(feature, backend="aot_eager", fullgraph=True)(image)
    away = (found[0][0, :, None, :, 2] - expected[0][0, :, :, 2]).abs().amax(-1).amin(1)
    assert (away < 0.01).float().mean() >= 0.99
    assert (found[1] - expected[1]).abs().max() < 1e-3


def test_extract_has_no_empty_slots(image):
    features = KDFeature(3000).extract(image[0])
    n = features["keypoints"].shape[1]
    assert 0 < n < 3000 and features["keypoints"].shape == (1, n, 2)
    assert features["descriptors"].shape == (1, n, 128) and (features["keypoint_scores"] > 0).all()
    assert features["scales"].shape == features["oris"].shape == (1, n)
    assert features["image_size"].tolist() == [[200, 160]]
    with pytest.raises(ValueError, match=r"\(1, C, H, W\)"):
        KDFeature(10).extract(torch.rand(2, 1, 40, 40))


def test_a_number_that_the_detector_cannot_honour_is_refused():
    with pytest.raises(ValueError, match="num_features=500 is for the default detector"):
        KDFeature(500, detector=DoGDetector(100))
