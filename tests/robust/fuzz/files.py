"""The files of others: one small function for each way that they come in."""

import gzip
import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from pieces import (
    as_json,
    as_zip,
    encoded,
    from_zip,
    join,
    split,
    texture,
    with_png_checksums,
    written,
)
from target import DOCUMENTED, Target, folder, mode_of

from experiments.protocols.cameras import read_cameras
from experiments.protocols.patch_sets import read_hpatches_strips, read_phototourism
from experiments.scenes.sequences import read_sequence
from kd_cv import DoG, KDDescriptor
from kd_cv.io import archive, images
from kd_cv.io.sources import read_source
from kd_cv.whitening.files import load, load_pth, save
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import VARIANTS
from kd_cv.whitening.whitening import Whitening

# ------------------------------------------------------------------------------------ fitted files


def weights(data: bytes) -> None:
    """A file of matrices or statistics: as it is (even), or with right checksums (odd)."""
    mode, data = mode_of(data)
    content = as_zip(_signed(data)) if mode & 1 else data
    with folder() as here:
        path = here / "w.npz"
        path.write_bytes(content)
        if mode & 2:
            statistics = Statistics.load(path)
            assert statistics.C.shape == (statistics.dim, statistics.dim) or not statistics.count
            return
        for fitted in load(path).values():
            for variant in VARIANTS:
                if fitted.has(variant):
                    projection = fitted.projection(variant)
                    mu, A = projection.mu, projection.A
                    assert A.shape == (fitted.dim, fitted.max_dim) and mu.shape == (fitted.dim,)
                    assert np.isfinite(A).all()


def _signed(data: bytes) -> bytes:
    """The pieces of a file with the checksum that its arrays and its text ask for, if there is one.

    What is wrong with the others is for the reader to say.
    """
    pieces = split(data, 64)
    members = dict(zip(pieces[::2], pieces[1::2], strict=True))
    with suppress(Exception):
        meta = json.loads(members[b"meta.json"])
        arrays = {
            name.decode("latin-1").removesuffix(".npy"): archive.array_from_npy("", members[name])
            for name in members
            if name not in (b"meta.json", b"")
        }
        meta["sha256"] = archive.checksum(arrays, {k: meta[k] for k in meta if k != "sha256"})
        members[b"meta.json"] = as_json(meta)
    return join(*(piece for member in members.items() for piece in member))


def _weights_seeds() -> list[bytes]:
    X = np.random.default_rng(0).normal(size=(40, 3))
    statistics = Statistics(3).update(X, [[0, 1], [2, 3], [4, 5], [6, 7]])
    fitted = Whitening.fit(statistics, provenance={"set": "noise"})
    entries = {("polar", 32): fitted, ("cart", 64): Whitening.fit(Statistics(3).update(X))}
    matrices = written("w.npz", lambda path: save(path, entries))
    sums = written("s.npz", statistics.save)
    return [
        b"\0" + matrices,
        b"\1" + from_zip(matrices),
        b"\2" + sums,
        b"\3" + from_zip(sums),
    ]


def pth(data: bytes) -> None:
    """The authors' matrices: as they are (even), or as a sound zip file (odd)."""
    mode, data = mode_of(data)
    with folder() as here:
        path = here / "w.pth"
        path.write_bytes(as_zip(data) if mode & 1 else data)
        fitted = load_pth(path)
        assert np.isfinite(fitted.projection("w").A).all()


def _pth_seeds() -> list[bytes]:
    import torch

    part = {"mean": torch.zeros(3), "eigvecs": torch.eye(3), "eigvals": torch.ones(3)}
    models = {"liberty": {"pca": part, "lw": part}}
    new = written("w.pth", lambda path: torch.save(models, path))
    old = written(
        "w.pth", lambda path: torch.save(models, path, _use_new_zipfile_serialization=False)
    )
    return [b"\0" + new, b"\1" + from_zip(new), b"\0" + old]


# ------------------------------------------------------------------------------------- public sets


def phototourism(data: bytes) -> None:
    """A sheet, info.txt and m50 file."""
    mode, data = mode_of(data)
    sheet, info, m50 = split(data, 3)
    with folder() as here:
        (here / "patches0000.bmp").write_bytes(with_png_checksums(sheet) if mode & 1 else sheet)
        if info:
            (here / "info.txt").write_bytes(info)
        if m50:
            (here / "m50_2_2_0.txt").write_bytes(m50)
        read = read_phototourism(here)
        assert read.patches.shape == (len(read), 64, 64)
        read.matching_pairs()


def _phototourism_seeds() -> list[bytes]:
    sheet = np.zeros((1024, 1024), np.uint8)
    sheet[:64, :256] = texture(64, 256)
    png = encoded(sheet, ".png", cv2.IMWRITE_PNG_COMPRESSION, 9)
    info, m50 = b"0 0\n0 0\n1 0\n1 0\n", b"0 0 0 1 0 0 0\n0 0 0 2 1 0 0\n"
    return [b"\0" + join(png, info, m50), b"\1" + join(png, info, m50), b"\0" + join(png, b"", b"")]


def hpatches(data: bytes) -> None:
    """Two strips of the release, and a sequence: two images and a homography."""
    mode, data = mode_of(data)
    first, second, H = split(data, 3)
    if mode & 1:
        first, second = with_png_checksums(first), with_png_checksums(second)
    with folder() as here:
        (here / "1.png").write_bytes(first)
        (here / "2.png").write_bytes(second)
        (here / "H_1_2").write_bytes(H)
        (here / "ref.png").write_bytes(first)
        (here / "e1.png").write_bytes(second)
        if mode & 2:
            strips = read_hpatches_strips(here)
            assert strips["ref"].shape == strips["e1"].shape
            assert strips["ref"].shape[1:] == (65, 65)
            return
        read = read_sequence(here)
        assert np.isfinite(np.linalg.inv(read.H_1tok[1])).all()
        for path in read.images:
            images.read_gray(path)


def _hpatches_seeds() -> list[bytes]:
    strip = encoded(texture(130, 65), ".png")
    H = b"1 0.1 3\n-0.1 1 2\n1e-4 0 1\n"
    return [bytes([mode]) + join(strip, strip, H) for mode in range(4)]


def cameras(data: bytes) -> None:
    """Cameras of two photographs: Strecha's (0) or poses.txt (1)."""
    mode, data = mode_of(data)
    first, second = split(data, 2)
    with folder() as here:
        for name in ("a.pgm", "b.pgm"):
            (here / name).write_bytes(encoded(texture(24, 30), ".pgm"))
        names = (("a.pgm.camera", "b.pgm.camera"), ("poses.txt", "rest"))[mode % 2]
        (here / names[0]).write_bytes(first)
        (here / names[1]).write_bytes(second)
        for view in read_cameras(here):
            assert view.image.resolve().is_relative_to(here.resolve()), view.image
            assert np.isfinite(view.K).all() and np.isfinite(view.t).all()
            assert np.allclose(view.R @ view.R.T, np.eye(3), atol=0.01)


def _cameras_seeds() -> list[bytes]:
    strecha = b"80 0 15\n0 80 12\n0 0 1\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 4 5\n30 24\n"
    pose = b" 80 0 15 0 80 12 0 0 1 1 0 0 0 1 0 0 0 1 3 4 5\n"
    return [
        b"\0" + join(strecha, strecha),
        b"\1" + join(b"# poses\na.pgm" + pose + b"b.pgm" + pose, b""),
    ]


# ------------------------------------------------------------------------------------------ images


@contextmanager
def _photo(data: bytes) -> Iterator[Path]:
    """The file of a photograph; a PNG has right checksums if the first byte is odd."""
    mode, data = mode_of(data)
    with folder() as here:
        path = here / "i"
        path.write_bytes(with_png_checksums(data) if mode & 1 else data)
        yield path


def image(data: bytes) -> None:
    """A photograph, as gray."""
    with _photo(data) as path:
        _agree(path.read_bytes())
        assert images.read_gray(path).size <= images.MAX_PIXELS


def _agree(data: bytes) -> None:
    """What is decoded has the size that was read from the header, or the limit is worth nothing."""
    size = images._image_size(data)
    if size is None or not 0 < size[0] * size[1] <= images.MAX_PIXELS:
        return
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return
    assert decoded is None or decoded.shape == size[::-1], f"{decoded.shape} for {size}"


def _image_seeds() -> list[bytes]:
    gray = texture(12, 10)
    colour = np.dstack([gray, gray.T.reshape(12, 10), 255 - gray])
    progressive = (cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    files = [
        encoded(gray, ".png"), encoded(colour, ".png"),
        encoded(gray.astype(np.uint16) * 257, ".png"),
        encoded(gray, ".jpg"), encoded(colour, ".jpg"), encoded(colour, ".jpg", *progressive),
        encoded(gray, ".bmp"), encoded(colour, ".bmp"),
        encoded(gray, ".pgm"), encoded(colour, ".ppm"),
        b"P2 # a comment\n4 2\n255\n" + b"7 " * 8, b"P3\n2 2\n255\n" + b"9 " * 12,
        encoded(colour, ".tiff"), encoded(colour, ".webp"),
    ]  # fmt: skip
    return [bytes([not k % 2]) + data for k, data in enumerate(files)]


def photograph(data: bytes) -> None:
    """A photograph in colour, with its focal length; of any kind that OpenCV reads, and HEIC."""
    with _photo(data) as path:
        source = read_source(path)
        assert source.pixels.ndim in (2, 3) and source.pixels.size <= 3 * images.MAX_PIXELS
        assert source.focal_in_widths is None or 0.01 <= source.focal_in_widths <= 1000


def _photograph_seeds() -> list[bytes]:
    exif = struct.pack(
        "<4sI H HHII HHII I H HHII HHII I",
        b"II*\0", 8, 2, 0x112, 3, 1, 6, 0x8769, 4, 1, 38, 0,
        2, 0xA405, 3, 1, 28, 0xA002, 4, 1, 10, 0,
    )  # fmt: skip
    jpeg = encoded(texture(12, 10), ".jpg")
    told = b"Exif\0\0" + exif
    with_exif = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(told) + 2) + told + jpeg[2:]
    return [b"\0" + with_exif, *_image_seeds(), *_heic_seeds()]


def _heic_seeds() -> list[bytes]:
    """A photograph of a phone, where it can be written."""
    try:
        from PIL import Image
        from pillow_heif import register_heif_opener
    except ImportError:
        return []
    register_heif_opener()
    return [b"\0" + written("i.heic", Image.fromarray(texture(64, 64)).save)]


# -------------------------------------------------------------------------------------- collections


def listed(data: bytes) -> None:
    """A list of images, extracted: nothing may be written but the output."""
    from kd_cv.collection import Extraction, extract, reading

    with folder() as here:
        images, out = here / "images", here / "out"
        images.mkdir()
        out.mkdir()
        for name in ("a.png", "b.pgm"):
            (images / name).write_bytes(encoded(texture(24, 30), Path(name).suffix))
        (images / "list.txt").write_bytes(data)
        try:
            settings = Extraction("sift", max_keypoints=4)
            extract(images / "list.txt", out / "f.h5", settings, workers=1)
            with reading(out / "f.h5") as stored:
                for name in stored:
                    assert (images / name).resolve().is_relative_to(images.resolve()), name
        finally:
            assert sorted(os.listdir(here)) == ["images", "out"]
            assert sorted(os.listdir(images)) == ["a.png", "b.pgm", "list.txt"]
            assert set(os.listdir(out)) <= {"f.h5", "f.h5.partial"}


def _listed_seeds() -> list[bytes]:
    return [
        b"a.png\nb.pgm\n", b"# two\r\n\r\n./a.png\r\nb.pgm", b"../a.png\n", b"/a.png\n",
        b"sub/../../a.png\na.png\n", b"a.png/keypoints\na.png\nabsent.png\n",
    ]  # fmt: skip


def features(data: bytes) -> None:
    """A feature file: as it is (0), packed by zlib (2), or sound HDF5 of strange content (odd)."""
    from kd_cv.collection import reading

    mode, data = mode_of(data)
    with folder() as here:
        path = here / "f.h5"
        if mode & 1:
            _strange_hdf5(path, data)
        else:
            path.write_bytes(_unpacked(data) if mode & 2 else data)
        with reading(path) as stored:
            assert stored.descriptor in ("kd", "sift", "rootsift")
            for name in stored:
                own = stored[name]
                n = stored.count(name)
                assert own.frames.shape == (n, 4) and own.scores.shape == (n,)
                assert own.descriptors.shape[0] == n and own.descriptors.dtype == np.float32
                assert (here / name).resolve().is_relative_to(here.resolve()), name


def _unpacked(data: bytes) -> bytes:
    """What zlib makes of it, 8 MB at most."""
    try:
        return zlib.decompressobj().decompress(data, 1 << 23)
    except zlib.error as error:
        raise ValueError(str(error)) from error


SOUND = {
    "keypoints": np.ones((3, 2), np.float32),
    "descriptors": np.full((8, 3), 0.25, np.float16),
    "scores": np.ones(3, np.float32),
    "scales": np.ones(3, np.float32),
    "oris": np.zeros(3, np.float32),
    "image_size": np.array([30, 24]),
}


def _strange_hdf5(path: Path, data: bytes) -> None:
    """A file like those of `extract`, each of its parts as a byte of the data chooses."""
    import h5py

    choices = iter(data)
    names = ("a.png", "sub/b.png", "../c.png", "a.png/../d", "..", "x" * 300, "é\n\x1b[2J")
    settings = ('{"descriptor": "sift"}', "{}", "[" * 100000, "7", '{"descriptor": {}}', b"\xff", 3)
    with h5py.File(path, "w") as file:
        file.attrs["kd_cv"] = settings[next(choices, 0) % len(settings)]
        for _ in range(next(choices, 1) % 3 + 1):
            try:
                group = file.require_group(names[next(choices, 0) % len(names)])
                for key, value in SOUND.items():
                    _strange_member(group, key, value, next(choices, 0))
            except (ValueError, TypeError, OSError, KeyError, RuntimeError):
                continue  # HDF5 would not write it


def _strange_member(group: object, key: str, value: np.ndarray, choice: int) -> None:
    import h5py

    kind = choice % 20
    if kind < 4:
        group[key] = value
    elif kind == 4:
        return
    elif kind == 5:
        group.create_group(key)
    elif kind == 6:
        group.create_dataset(key, (2**31, *value.shape[1:]), "f4", chunks=True)
    elif kind == 7:
        group[key] = np.zeros((0, *value.shape[1:]), value.dtype)
    elif kind == 8:
        group[key] = value[..., None]
    elif kind == 9:
        group[key] = float("nan")
    elif kind == 10:
        group[key] = "text"
    elif kind == 11:
        group[key] = np.array([(1, 2.0)] * 3, [("a", "i4"), ("b", "f8")])
    elif kind == 12:
        group[key] = h5py.SoftLink("/" + key)
    elif kind == 13:
        group[key] = h5py.ExternalLink("/etc/passwd", "/")
    elif kind == 14:
        group[key] = np.full(value.shape, np.nan, np.float32)
    elif kind == 15:
        group[key] = value.astype(np.int64) - 2**62
    elif kind == 16:
        group[key] = h5py.Empty("f")
    elif kind == 17:
        group.create_dataset(key, value.shape, "f4", external=[("/etc/passwd", 0, 64)])
    elif kind == 18:
        group[key] = np.concatenate([value, value], axis=-1)
    else:
        group.create_dataset(key, (2**12, 2**12), "f4", compression="gzip", fillvalue=1.0)


def _features_seeds() -> list[bytes]:
    with folder() as here:
        path = here / "f.h5"
        _strange_hdf5(path, bytes(20))
        sound = path.read_bytes()
    strange = [
        bytes([1, 0, 0, 0, *(kind if member == at else 0 for member in range(len(SOUND)))])
        for kind in range(4, 20)
        for at in (0, 1)
    ]
    return [b"\0" + sound, *strange, *(bytes([1, kind, 1, kind, 0]) for kind in range(7))]


def pairs(data: bytes) -> None:
    """A list of pairs of images: what was read is read again when it is written."""
    from kd_cv.collection.database import read_pairs, write_pairs

    with folder() as here:
        (here / "pairs.txt").write_bytes(data)
        read = read_pairs(here / "pairs.txt")
        assert all(len(pair) == 2 and all(pair) for pair in read)
        write_pairs(here / "again.txt", read)
        assert read_pairs(here / "again.txt") == read


def _pairs_seeds() -> list[bytes]:
    return [b"a.png b.png\nsub/c.png  a.png\r\n", b"a b.png\tc d.png\n", "é\tü\n".encode()]


def index(data: bytes) -> None:
    """A saved index: as it is (even), or sound and signed, around an index of FAISS's (odd)."""
    from kd_cv.collection.retrieval import Index

    mode, data = mode_of(data)
    with folder() as here:
        path = here / "i.npz"
        path.write_bytes(as_zip(_signed_index(data)) if mode & 1 else data)
        loaded = Index.load(path)
        assert len(loaded.starts) == len(loaded.names) + 1 and loaded.starts[-1] == len(loaded)
        votes = loaded.votes(np.eye(3, 8, dtype=np.float32))
        assert votes.shape == (len(loaded.names),) and np.isfinite(votes).all()


def _signed_index(data: bytes) -> bytes:
    """A file of these pieces, but of the index of FAISS's that there was, with its checksum."""
    pieces = split(data, 16)
    members = dict(zip(pieces[::2], pieces[1::2], strict=True))
    sound = split(_saved_index(), 16)
    members[b"index.npy"] = dict(zip(sound[::2], sound[1::2], strict=True))[b"index.npy"]
    return _signed(join(*(piece for member in members.items() for piece in member)))


@lru_cache(maxsize=1)
def _saved_index() -> bytes:
    """The pieces of a saved index."""
    import faiss

    from kd_cv.collection.retrieval import Index

    flat = faiss.IndexFlatL2(8)
    flat.add(np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32))
    made = Index(Path("/f.h5"), ("a.png", "b.png"), np.array([0, 2, 5]), flat, "{}")
    return from_zip(written("i.npz", made.save))


def _index_seeds() -> list[bytes]:
    return [b"\0" + as_zip(_saved_index()), b"\1" + _saved_index()]


def partial(data: bytes) -> None:
    """What lies about where partial files go: nothing may be written but the output."""
    from kd_cv.collection import Extraction, extract, reading

    mode, data = mode_of(data)
    with folder() as here:
        photos, out, theirs = here / "images", here / "out", here / "theirs"
        for place in (photos, out, theirs):
            place.mkdir()
        (photos / "a.pgm").write_bytes(encoded(texture(24, 30), ".pgm"))
        (theirs / "file").write_bytes(b"theirs")
        parts = out / "f.h5.partial"
        if mode & 2:
            parts.symlink_to(theirs if mode & 4 else here / "nowhere")
        else:
            parts.mkdir()
            for kind, name in zip(data, _PART_NAMES, strict=False):
                _lay_about(parts / name, kind, theirs / "file", data)
        try:
            settings = Extraction("sift", max_keypoints=4)
            extract(photos, out / "f.h5", settings, workers=1, overwrite=bool(mode & 1))
            with reading(out / "f.h5") as stored:
                assert list(stored) == ["a.pgm"]
        finally:
            assert sorted(os.listdir(here)) == ["images", "out", "theirs"]
            assert os.listdir(theirs) == ["file"] and os.listdir(photos) == ["a.pgm"]
            assert (theirs / "file").read_bytes() == b"theirs"
            assert not (out / "f.h5").is_symlink()


_PART_NAMES = ("whole.h5", "settings.json", "lock", "0" * 24 + ".h5", ".f-" + "0" * 16 + ".h5")


def _lay_about(path: Path, kind: int, target: Path, data: bytes) -> None:
    if kind % 6 == 1:
        path.symlink_to(target)
    elif kind % 6 == 2:
        path.write_bytes(data)
    elif kind % 6 == 3:
        path.mkdir()
    elif kind % 6 == 4 and hasattr(os, "mkfifo"):
        os.mkfifo(path)
    elif kind % 6 == 5:
        path.symlink_to("/dev/zero")


def _partial_seeds() -> list[bytes]:
    one_each = [
        bytes([0, *(k if at == i else 0 for i in range(5))]) for k in (1, 4) for at in (1, 3)
    ]
    return [b"\0", b"\1", *one_each]


# --------------------------------------------------------------------------------- compiled code

_KEY, _CODE = ("a signature", "a machine", ()), ("compiled", b"code" * 50)


def _compiled_files(here: Path) -> object:
    from kd_cv.jit import CheckedFiles

    return CheckedFiles(str(here), _compiled_files, {})


def compiled(data: bytes) -> None:
    """A file of compiled code: what was compiled, or refused."""
    with folder() as here:
        files = _compiled_files(here)
        files._path(_KEY).write_bytes(data)
        assert files.load(_KEY) == _CODE


def _compiled_seeds() -> list[bytes]:
    with folder() as here:
        files = _compiled_files(here)
        files.save(_KEY, _CODE)
        return [files._path(_KEY).read_bytes()]


# ------------------------------------------------------------------------------------------- names


def names(data: bytes) -> None:
    """Any bytes as the name of a file, of a node and of matrices."""
    name = os.fsdecode(data)
    if not name or len(data) > 200 or {"/", "\0"} & {*name} or name in (".", ".."):
        raise ValueError("no file can have this name")
    with folder() as here:
        path, kd = here / f"{name}.yml", KDDescriptor(patch_size=16, whitening=None)
        kd.write(path)
        other = KDDescriptor()
        other.read(path)
        assert other.settings.patch_size == 16
        with suppress(ValueError, cv2.error):  # text that is none; what OpenCV takes for no name
            kd.write(here / "s.yml", name)
        _fitted_file(here / f"{name}.npz")
        fitted = KDDescriptor(whitening="wua", weights=here / f"{name}.npz")
        fitted.write(here / "s.yml")


@lru_cache(maxsize=1)
def _fitted() -> bytes:
    X = np.random.default_rng(0).normal(size=(300, 238))
    entries = {("concat", 32): Whitening.fit(Statistics(238).update(X))}
    return written("w.npz", lambda path: save(path, entries))


def _fitted_file(path: Path) -> None:
    path.write_bytes(_fitted())


def _names_seeds() -> list[bytes]:
    return [b"a", "é".encode(), b"a b", b"-", b"\xed\xa0\x80", b"a\n\x1b[2J"]


# ---------------------------------------------------------------------------------------- settings

SUFFIXES = (".yml", ".xml", ".json", ".yml.gz", ".txt")


def settings(data: bytes) -> None:
    """A file of settings: a descriptor's, or (64) the detector's."""
    mode, data = mode_of(data)
    with folder() as here:
        path = here / f"s{SUFFIXES[(mode & 63) % len(SUFFIXES)]}"
        path.write_bytes(gzip.compress(data, 1) if mode & 0x80 else data)
        own = DoG(7) if mode & 64 else KDDescriptor(7, patch_size=16, whitening=None)
        before = repr(own)
        try:
            own.read(path)
        except DOCUMENTED:
            assert repr(own) == before  # a read that fails changes nothing
            raise
        assert own.getNFeatures() >= 0 and own.getSigma() >= 1
        assert mode & 64 or own.descriptorSize() >= 1
        own.write(path)


def _settings_seeds() -> list[bytes]:
    kd, dog = KDDescriptor(patch_size=32, scales=2, upright=True), DoG(500, sigma=2.0)
    seeds = [
        bytes([mode + kind]) + written(f"s{suffix}", own.write)
        for kind, own in ((0, kd), (64, dog))
        for mode, suffix in enumerate(SUFFIXES[:4])
    ]
    return [*seeds, b"\0%YAML:1.0\n---\n" + b"a: &a [*a, *a]\n" * 3]


FILES = {
    "weights": Target(weights, _weights_seeds),
    "pth": Target(pth, _pth_seeds, needs="torch"),
    "phototourism": Target(phototourism, _phototourism_seeds),
    "hpatches": Target(hpatches, _hpatches_seeds),
    "cameras": Target(cameras, _cameras_seeds),
    "image": Target(image, _image_seeds),
    "photograph": Target(photograph, _photograph_seeds),
    "list": Target(listed, _listed_seeds, needs="h5py"),
    "features": Target(features, _features_seeds, needs="h5py"),
    "pairs": Target(pairs, _pairs_seeds, needs="h5py"),
    "index": Target(index, _index_seeds, needs="faiss"),
    "partial": Target(partial, _partial_seeds, needs="h5py"),
    "compiled": Target(compiled, _compiled_seeds, needs="numba"),
    "names": Target(names, _names_seeds),
    "settings": Target(settings, _settings_seeds),
}
