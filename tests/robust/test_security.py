"""What files of others may not do: run code, take all memory, write elsewhere, use the network."""

import ast
import gzip
import json
import os
import re
import stat
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

import kd_cv
from kd_cv import KDDescriptor
from kd_cv.collection import Summary
from kd_cv.evaluate.patch_sets import PatchSet
from kd_cv.io import archive, images
from kd_cv.io.files import replacing
from kd_cv.whitening import files
from kd_cv.whitening import registry as weights
from kd_cv.whitening.statistics import Statistics
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
def test_no_module_of_the_network_is_imported():
    network = {"socket", "ssl", "urllib", "http", "ftplib", "requests", "httpx", "aiohttp", "pooch"}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not network & {name.split(".")[0] for name in names}, path.name


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


# ------------------------------------------------------------------------------- what is written


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
class TestReplacing:
    def test_the_temporary_file_lies_beside_and_cannot_be_foreseen(self, tmp_path):
        names = set()
        for _ in range(5):
            with replacing(tmp_path / "a.png") as temporary:
                assert temporary.parent == tmp_path and temporary.suffix == ".png"
                names.add(temporary.name)
                temporary.write_text("x")
        assert len(names) == 5
        assert all(re.search("[0-9a-f]{16}", name) for name in names)
        assert os.listdir(tmp_path) == ["a.png"]

    def test_a_link_is_replaced_and_not_followed(self, tmp_path):
        (tmp_path / "theirs").write_text("theirs")
        (tmp_path / "mine").symlink_to("theirs")
        with replacing(tmp_path / "mine") as temporary:
            temporary.write_text("mine")
        assert (tmp_path / "theirs").read_text() == "theirs"
        assert not (tmp_path / "mine").is_symlink()

    def test_permissions_are_those_of_an_ordinary_file(self, tmp_path, monkeypatch):
        # The umask belongs to all threads: it is not touched, not even for a moment.
        monkeypatch.setattr(os, "umask", None)
        (tmp_path / "plain").write_text("")
        with replacing(tmp_path / "new"):
            pass
        assert _mode(tmp_path / "new") == _mode(tmp_path / "plain")

    @pytest.mark.parametrize("mode", [0o600, 0o444, 0o640])
    def test_permissions_of_a_file_that_is_replaced_are_kept(self, tmp_path, mode):
        (tmp_path / "a").write_text("old")
        (tmp_path / "a").chmod(mode)
        with replacing(tmp_path / "a") as temporary:
            assert _mode(temporary) == 0o600
            temporary.write_text("new")
        assert _mode(tmp_path / "a") == mode

    def test_the_longest_name_there_can_be(self, tmp_path):
        path = tmp_path / ("x" * 251 + ".txt")
        with replacing(path) as temporary:
            temporary.write_text("x")
        assert path.read_text() == "x"


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------------------------------- images


def jpeg(image, **options):
    return cv2.imencode(".jpg", image, [v for pair in options.items() for v in pair])[1].tobytes()


def hidden_jpeg():
    """A large JPEG whose frame header lies in what a naive reader takes for a segment to skip."""
    large = jpeg(np.zeros((3000, 3000), np.uint8))
    decoy = b"\xff\xc0\0\x0b\x08\0\x08\0\x08\1\1\x11\0"  # 8 x 8
    tables = large[2 : large.index(b"\xff\xc0")]
    # FF 01 has no length: a decoder goes on right behind it.
    jump = 2 + len(tables) + len(large[large.index(b"\xff\xc0") :])
    return large[:2] + b"\xff\x01" + struct.pack(">H", min(jump, 65000)) + large[2:] + decoy * 5000


LARGE_TO_A_DECODER = {
    "comment that ends at \\r": b"P5 #\r3000 3000 255\n#\n8 8 255\n" + bytes(9_000_000),
    "number glued to a comment": b"P5 3000#\n 8 8\n3000 255\n" + bytes(9_000_000),
    "marker without length": hidden_jpeg(),
    "chunk before the header": b"\x89PNG\r\n\x1a\n\0\0\0\x0dtEXt" + struct.pack(">II", 8, 8),
}


@pytest.mark.parametrize("kind", LARGE_TO_A_DECODER)
def test_a_header_means_the_same_to_reader_and_decoder(tmp_path, kind, monkeypatch):
    """Nothing larger than the limit is decoded, whatever a header seems to say."""
    monkeypatch.setattr(images, "MAX_PIXELS", 1_000_000)
    decoded = []
    imdecode = cv2.imdecode
    monkeypatch.setattr(cv2, "imdecode", lambda *a: decoded.append(imdecode(*a)) or decoded[-1])
    path = tmp_path / "i"
    path.write_bytes(LARGE_TO_A_DECODER[kind])
    with pytest.raises(ValueError, match=r"is not a|pixels"):
        images.read_gray(path)
    assert not decoded


def test_a_jpeg_of_a_thousand_scans_is_refused(tmp_path):
    data = jpeg(np.zeros((64, 64), np.uint8))
    scan = data.index(b"\xff\xda")
    path = tmp_path / "i.jpg"
    path.write_bytes(data[:-2] + data[scan:-2] * 1000 + data[-2:])
    with pytest.raises(ValueError, match="is not a JPEG"):
        images.read_gray(path)
    path.write_bytes(data)
    assert images.read_gray(path).shape == (64, 64)


def test_too_large_a_file_and_what_is_no_file_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_IMAGE_BYTES", 1000)
    (tmp_path / "large.png").write_bytes(bytes(1001))
    with pytest.raises(ValueError, match="1001 bytes, at most 1000"):
        images.read_gray(tmp_path / "large.png")
    with pytest.raises(ValueError, match="is not a file, but a directory"):
        images.read_gray(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")  # to open it would wait for a writer
        with pytest.raises(ValueError, match="is not a file, but a pipe"):
            images.read_gray(tmp_path / "pipe.png")


def test_other_kinds_of_images_pass_only_where_they_may(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 1_000_000)
    path = tmp_path / "i"
    for data in (b"GIF89a", b"\0\0\0\x1cftypheic", b""):
        path.write_bytes(data)
        assert images.read_image_bytes(path, others=True) == data
        with pytest.raises(ValueError, match="is not a JPEG"):
            images.read_image_bytes(path)
    for data in LARGE_TO_A_DECODER.values():
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"is not a JPEG|pixels"):
            images.read_image_bytes(path, others=True)


# --------------------------------------------------------------------------------------- archives


def npy(header, data=b""):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


CLAIM = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(CLAIM % ("<f8", "(999999999999,)")), "has 0 bytes, but an array"),
        (
            npy(CLAIM % ("<f8", "(0, 99999999999, 99999999999)")),
            "not an array of numbers with one or two axes",
        ),
        (npy(CLAIM % ("<f8", "()"), bytes(8)), "not an array of numbers with one or two axes"),
        (npy(CLAIM % ("<U1", "(1,)"), bytes(4)), "not an array of numbers"),
        (npy(CLAIM % ("|O", "(1,)"), b"cos\nsystem\n."), "not an array of numbers"),
        (npy("-" * 100 + "1"), "not an array"),
        (npy("("), "not an array"),
        (npy(CLAIM % ("<f8", "(" + "1" * 50 + ")")), "not an array"),
        (b"", "not an array"),
    ],
)
def test_arrays_are_what_their_headers_say_or_refused(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        archive.array_from_npy("a.npy", data)
    path = tmp_path / "s.npz"
    with zipfile.ZipFile(path, "w") as stored:
        stored.writestr("meta.json", '{"format": "kd_cv index", "version": 1}')
        stored.writestr("images.npy", data)
    with pytest.raises(ValueError, match=f"not a sound kd_cv index file.*({message})"):
        archive.read_archive(path, "index")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 4)), np.ones(1, np.float32), np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=np.uint8),
        np.arange(3, dtype=">i8"),
    ],
)  # fmt: skip
def test_arrays_survive(tmp_path, array):
    archive.write_archive(tmp_path / "a.npz", "test", {"x": array}, {"said": [1, "é"]})
    arrays, content = archive.read_archive(tmp_path / "a.npz", "test")
    np.testing.assert_array_equal(arrays["x"], array)
    assert arrays["x"].dtype == array.dtype.newbyteorder("=") and content == {"said": [1, "é"]}


@pytest.mark.slow
def test_other_ways_of_packing_are_refused(tmp_path):
    """Python's bzip2 and LZMA readers unpack a whole block before they look at the size."""
    path = tmp_path / "s.npz"
    for kind in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", kind) as stored:
            stored.writestr("images.npy", bytes(10_000_000))
        with pytest.raises(ValueError, match="packed in another way"):
            archive.read_archive(path, "index")
    with zipfile.ZipFile(path, "w") as stored:
        stored.writestr("images.npy", bytes(2000))
    with pytest.raises(ValueError, match="at most 1000 are read"):
        archive.read_archive(path, "index", 1000)
    with zipfile.ZipFile(path, "w") as stored:
        for k in range(1025):
            stored.writestr(f"{k}.npy", b"")
    with pytest.raises(ValueError, match="1025 members"):
        archive.read_archive(path, "index")


@pytest.mark.slow
def test_an_archive_of_many_members_is_refused_before_they_are_listed(tmp_path):
    """A list of members takes ten times its size in Python."""
    import tracemalloc

    path, count = tmp_path / "s.npz", 50_000
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, *[0] * 4, 0, 0, 0, 1, *[0] * 6)
    listed = (entry + b"a") * count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count % 65536, count % 65536, len(listed), 0, 0)
    path.write_bytes(listed + end)
    with zipfile.ZipFile(path) as sound:
        assert len(sound.infolist()) == count
    tracemalloc.start()
    with pytest.raises(ValueError, match="50000 members, more than 1024"):
        Statistics.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * path.stat().st_size


def test_statistics_of_any_claimed_dimension_take_no_memory(tmp_path):
    path = tmp_path / "s.npz"
    meta = {"dim": 10**9, "count": 1, "pair_count": 0}
    archive.write_archive(path, "statistics", {"mean": np.zeros(3)}, meta)
    with pytest.raises(ValueError, match="expected finite arrays"):
        Statistics.load(path)


def test_a_spectrum_that_cannot_be_inverted_is_refused():
    fitted = Whitening(mu=np.zeros(2), U=np.eye(2), lam=np.array([1.0, 1e-300]), beta_index=1)
    with pytest.raises(ValueError, match="no finite 'w'"):
        fitted.projection("w")
    assert np.isfinite(fitted.projection("pcasqrt").A).all()


def test_one_point_on_every_patch_is_no_memory_bomb():
    n = 12_000
    same = PatchSet(np.zeros((n, 1, 1), np.uint8), np.zeros(n, np.int64))
    with pytest.raises(ValueError, match="71994000 pairs of patches of the same point"):
        same.matching_pairs()


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


def test_the_registry_names_files_beside_it_only(tmp_path, monkeypatch):
    entry = {"sha256": "", "fitted_on": "", "patches": 1, "pairs": 1, "scenes": 1, "command": ""}
    for k, file in enumerate(["../a.npz", "/etc/a.npz", "b/a.npz", ""]):
        where = tmp_path / str(k)
        where.mkdir()
        (where / "index.json").write_text(json.dumps({"town": {**entry, "file": file}}))
        monkeypatch.setattr(weights, "folder", lambda where=where: where)
        with pytest.raises(ValueError, match="not the name of a file beside it"):
            weights.registry()
    for k, other in enumerate(({"sha256": []}, {"file": 3})):
        where = tmp_path / f"other {k}"
        where.mkdir()
        content = {"town": {**entry, "file": "a.npz", **other}}
        (where / "index.json").write_text(json.dumps(content))
        monkeypatch.setattr(weights, "folder", lambda where=where: where)
        with pytest.raises(ValueError, match=r"must map names to.*must be text, got (\[\]|3)"):
            weights.registry()
    (tmp_path / "index.json").write_text("[" * 100_000)
    monkeypatch.setattr(weights, "folder", lambda: tmp_path)
    with pytest.raises(ValueError, match="must map names to"):
        weights.registry()


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

    def test_a_view_of_one_number_is_not_copied(self, torch, tmp_path):
        huge = torch.zeros(1).expand(10**12)
        part = {"mean": torch.zeros(3), "eigvecs": torch.eye(3), "eigvals": huge}
        torch.save({"liberty": {"pca": part}}, tmp_path / "w.pth")
        with pytest.raises(ValueError, match="1000000000000 entries"):
            files.load_pth(tmp_path / "w.pth")

    def test_too_large_a_file_is_not_read(self, torch, tmp_path):
        with open(tmp_path / "w.pth", "wb") as file:
            file.truncate(files._MAX_PTH_BYTES + 1)  # sparse
        with pytest.raises(ValueError, match="at most 268435456 are read"):
            files.load_pth(tmp_path / "w.pth")

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
@pytest.mark.parametrize("packed", [False, True])
def test_hostile_settings_are_refused(tmp_path, content, packed):
    path = tmp_path / "s.yml"
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    kd = KDDescriptor(patch_size=16)
    with pytest.raises(ValueError):
        kd.read(path)
    assert kd.settings.patch_size == 16


def test_settings_packed_by_gzip_are_read_and_bombs_refused(tmp_path):
    KDDescriptor(patch_size=20).write(tmp_path / "s.yml")
    packed = tmp_path / "s.yml.gz"
    packed.write_bytes(gzip.compress((tmp_path / "s.yml").read_bytes()))
    kd = KDDescriptor()
    kd.read(packed)
    assert kd.settings.patch_size == 20
    packed.write_bytes(gzip.compress(b"#" * 50_000_000))
    with pytest.raises(ValueError, match="more than 8192 bytes"):
        kd.read(packed)
    packed.write_bytes(gzip.compress(b"#" * 5000)[:-20])
    with pytest.raises(ValueError, match="is not YAML"):
        kd.read(packed)
    damaged = bytearray(gzip.compress((tmp_path / "s.yml").read_bytes()))
    damaged[-8] ^= 1  # of the checksum
    packed.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"s\.yml\.gz' is not YAML.*: CRC check failed"):
        kd.read(packed)


class TestFeatureFiles:
    @pytest.fixture
    def h5py(self):
        return pytest.importorskip("h5py")

    @pytest.fixture
    def file(self, h5py, tmp_path):
        """An open feature file without images."""
        with h5py.File(tmp_path / "f.h5", "w") as file:
            file.attrs["kd_cv"] = '{"descriptor": "sift"}'
            yield file

    def sound(self, group, **changes):
        arrays = {
            "keypoints": np.ones((3, 2), "f4"), "descriptors": np.ones((8, 3), "f2"),
            "scores": np.ones(3, "f4"), "scales": np.ones(3, "f4"), "oris": np.ones(3, "f4"),
            "image_size": np.array([30, 24]),
        }  # fmt: skip
        for key, value in (arrays | changes).items():
            if value is not None:
                group[key] = value
        return group

    def read(self, file):
        from kd_cv.collection import reading

        path = file.filename
        file.close()
        with reading(path) as stored:
            return {name: stored[name] for name in stored}

    def test_what_is_not_stored_is_refused(self, file):
        group = self.sound(file.create_group("a.png"), descriptors=None)
        group.create_dataset("descriptors", (2**40, 3), "f4", chunks=(2**10, 3))
        with pytest.raises(ValueError, match=r"'a\.png' is damaged: descriptors claims the shape"):
            self.read(file)

    def test_other_files_are_not_read(self, h5py, file, tmp_path):
        (tmp_path / "secret").write_bytes(bytes(100))
        group = self.sound(file.create_group("a.png"), scores=None)
        group.create_dataset("scores", (3,), "f4", external=[(str(tmp_path / "secret"), 0, 12)])
        with pytest.raises(ValueError, match="scores is not a dataset of the file itself"):
            self.read(file)

    def test_links_to_other_files_are_not_followed(self, h5py, file, tmp_path):
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["scores"] = np.ones(3, "f4")
        link = h5py.ExternalLink(str(tmp_path / "other.h5"), "/scores")
        self.sound(file.create_group("a.png"), scores=link)
        with pytest.raises(ValueError, match="scores is not a dataset of the file itself"):
            self.read(file)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"oris": np.ones(4, "f4")}, r"oris must be numbers of shape \(3,\)"),
            ({"scores": np.array([b"a", b"b", b"c"])}, "scores must be numbers"),
            ({"descriptors": np.ones((8, 2), "f4")}, r"numbers of shape \(8, 3\)"),
            ({"image_size": np.array([1, 2, 3])}, "image_size must be"),
            ({"scales": None}, "scales is not a dataset"),
            ({"scales": np.float32(3)}, "scales claims the shape"),
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, file, changes, message):
        self.sound(file.create_group("a.png"), **changes)
        with pytest.raises(ValueError, match=message):
            self.read(file)

    def test_names_stay_below_the_folder_of_the_images(self, file):
        self.sound(file.create_group("../a.png"))
        with pytest.raises(ValueError, match=r"image name '\.\./a\.png' must be a path below"):
            self.read(file)

    @pytest.mark.slow
    @pytest.mark.parametrize("settings", ["[" * 100_000, "7", "{}", 3, b"\xff"])
    def test_settings_that_are_none(self, file, settings):
        self.sound(file.create_group("a.png"))
        file.attrs["kd_cv"] = settings
        with pytest.raises(ValueError, match=r"f\.h5"):
            self.read(file)

    def test_a_sound_file_and_an_absent_name(self, file):
        from kd_cv.collection import reading

        self.sound(file.create_group("sub/a.png"))
        path = file.filename
        assert list(self.read(file)) == ["sub/a.png"]
        with reading(path) as stored, pytest.raises(KeyError):
            stored["b.png"]


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

    from kd_cv.report import Page
    from kd_cv.matching.pipeline import match

    y, x = np.mgrid[:48, :48]
    gray = np.rint(127 + 60 * np.sin(x * y / 90)).astype(np.uint8)
    image = np.dstack([gray] * 3)
    page = Page((image, image), (name, name)).html({name: (match(image, image), None)})

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
