"""What files of others may not do: run code, take all memory, write elsewhere, use the network."""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import kd_cv
from kd_cv import KDDescriptor
from kd_cv.collection import Summary
from kd_cv.whitening import files
from kd_cv.whitening import registry as weights
from kd_cv.whitening.whitening import Whitening

SOURCES = sorted(Path(kd_cv.__file__).parent.rglob("*.py"))


# ------------------------------------------------------------------------------------- the sources


def calls():
    """Dotted name and keywords of every call in the package, with the place."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
                yield ast.unparse(node.func), keywords, f"{path.name}:{node.lineno}"


@pytest.mark.slow
def test_nothing_is_unpickled_or_executed():
    forbidden = {"eval", "exec", "os.system", "os.popen", "pickle.load", "pickle.loads"}
    for name, keywords, place in calls():
        assert name not in forbidden, place
        assert keywords.get("allow_pickle", "False") == "False", place
        assert keywords.get("shell", "False") == "False", place
        if name == "torch.load":
            assert keywords["weights_only"] == "True", place


@pytest.mark.slow
def test_the_main_paths_work_without_a_network(tmp_path):
    """A new process in which any socket is an error."""
    program = """
        import socket, sys

        def refuse(*arguments, **keywords):
            raise AssertionError("a socket was asked for")

        class Refused(socket.socket):
            __init__ = refuse

        socket.socket = Refused
        socket.create_connection = socket.getaddrinfo = refuse
        import cv2
        import numpy as np
        from kd_cv import KDDescriptor, describe, match
        from kd_cv.whitening import registry as weights

        image = np.random.default_rng(0).integers(0, 255, (120, 160), dtype=np.uint8)
        image = cv2.GaussianBlur(image, (0, 0), 1.5)
        cv2.imwrite("a.png", image)
        for name in weights.registry():
            KDDescriptor(weights=name).detectAndCompute(image, None)
        describe(image[None, :32, :32])
        match(image, image)
        try:
            from kd_cv.cli import main
            assert main(["match", "a.png", "a.png", "-o", "m.png", "--report", "r.html"]) == 0
            assert main(["weights"]) == 0
        except ImportError:
            pass
        try:
            import h5py, kd_cv.collection
        except ImportError:
            pass
        else:
            kd_cv.collection.extract(".", "f.h5", workers=1)
        print("done")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.stdout.strip().endswith("done"), result.stderr


def test_a_spectrum_that_cannot_be_inverted_is_refused():
    fitted = Whitening(mu=np.zeros(2), U=np.eye(2), lam=np.array([1.0, 1e-300]), beta_index=1)
    with pytest.raises(ValueError, match="no finite 'w'"):
        fitted.projection("w")
    assert np.isfinite(fitted.projection("pcasqrt").A).all()


# ------------------------------------------------------------------------------------ the matrices


def test_a_changed_shipped_file_is_refused_by_the_descriptor(tmp_path, monkeypatch):
    entry = weights.registry()["multiview"]
    changed = bytearray((weights.folder() / entry.file).read_bytes())
    changed[len(changed) // 2] ^= 1
    (tmp_path / entry.file).write_bytes(changed)
    (tmp_path / "index.json").write_text((weights.folder() / "index.json").read_text())
    monkeypatch.setattr(weights, "folder", lambda: tmp_path)
    with pytest.raises(ValueError, match="is not the file that was shipped: its SHA-256"):
        KDDescriptor()


class TestPth:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch", "2.6")

    def test_code_is_not_run(self, torch, tmp_path):
        class Touch:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "run"),)

        torch.save(Touch(), tmp_path / "w.pth")
        with pytest.raises(ValueError, match="is not a file of torch tensors"):
            files.load_pth(tmp_path / "w.pth")
        assert not (tmp_path / "run").exists()

    def test_a_torch_that_runs_code_is_not_asked(self, torch, tmp_path, monkeypatch):
        monkeypatch.setattr(torch, "__version__", "2.5.1")
        with pytest.raises(ImportError, match=r"needs torch 2\.6 or newer, not 2\.5\.1"):
            files.load_pth(tmp_path / "absent.pth")


# --------------------------------------------------------------------- settings and feature files


YAML = "%YAML:1.0\n---\n"


@pytest.mark.parametrize(
    "content",
    [
        YAML + "a: " + "[" * 100_000,  # OpenCV's parser would take gigabytes
        '{"a":' * 100_000,
        "<?xml version='1.0'?><opencv_storage>" + "<a>" * 100_000,
        YAML + "- 1\n",
        YAML + "a: 1\n...\n- 1\n",  # OpenCV's parser would never end
        YAML + "   a: 1\nbcd-\n",  # nor here
        YAML + "feature2d: 7\n",
        YAML + 'feature2d:\n   name: "Feature2D.KD"\n',
        YAML + 'feature2d:\n   name: "Feature2D.KD"\n   patch_size: .inf\n   scales: 1.\n',
        YAML + 'feature2d:\n   name: "Feature2D.KD"\n   patch_size: 32\n   kernel: concat\n'
        "   magnification: 15.\n   dim: 128\n   descriptor_type: 5\n   whitening: ws\n"
        "   weights: multiview\n   scales: !!opencv-matrix\n      rows: 60000\n"
        "      cols: 60000\n      dt: d\n      data: [ ]\n",
    ],
)  # fmt: skip
def test_hostile_settings_are_refused(tmp_path, content):
    path = tmp_path / "s.yml"
    path.write_text(content)
    kd = KDDescriptor(patch_size=16)
    with pytest.raises(ValueError):
        kd.read(path)
    assert kd.settings.patch_size == 16


# ------------------------------------------------------------------------------------- the report


HOSTILE = [
    "</title><script>alert(1)</script>.png",
    '"><img src=x onerror=alert(1)>.jpg',
    "' onmouseover='alert(1)",
    "@@DATA@@ @@SCRIPT_HASH@@",
    "&lt;script&gt; \u2028 ]]> --> \udcff",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_report_shows_names_as_text(name):
    from html.parser import HTMLParser

    from kd_cv.matching.pipeline import match
    from kd_cv.report import page_of

    y, x = np.mgrid[:48, :48]
    gray = np.rint(127 + 60 * np.sin(x * y / 90)).astype(np.uint8)
    image = np.dstack([gray] * 3)
    page = page_of((image, image), (name, name), {name: (match(image, image), None)})

    class Elements(HTMLParser):
        def __init__(self):
            super().__init__()
            self.found, self.text = [], ""

        def handle_starttag(self, tag, attributes):
            self.found.append((tag, attributes))

        def handle_data(self, data):
            self.text += data

    parser = Elements()
    parser.feed(page)
    tags = [tag for tag, _ in parser.found]
    assert tags.count("script") == 2 and tags.count("title") == 1
    for _, attributes in parser.found:
        for key, value in attributes:
            assert not key.startswith("on")
            if key in ("src", "href"):
                assert value.startswith("data:")
    assert name.encode("utf-8", "replace").decode() in parser.text
    metas = [dict(attributes) for tag, attributes in parser.found if tag == "meta"]
    (policy,) = (meta["content"] for meta in metas if "http-equiv" in meta)
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_names_do_not_steer_the_terminal():
    summary = Summary(Path("f.h5"), 1, 0, 0, 0, {"a\x1b[2J\nb.jpg": "empty\x07 file"}, 1.0, 1)
    assert "skipped a?[2J b.jpg: empty? file" in str(summary)
