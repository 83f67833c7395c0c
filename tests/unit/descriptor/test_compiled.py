"""The cache of compiled code: what lies in it is what would be compiled, or is not used."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

compiled = pytest.importorskip("kd_cv.descriptor.compiled", reason="Numba is not installed")

KERNEL = """
from kd_cv.descriptor.compiled import njit

STEP = {step}


@njit(error_model="numpy")
def kernel(x):
    return x + STEP
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder that Numba keeps compiled code in; the warning may come again."""
    from numba.core import config

    folder = tmp_path / "cache"
    monkeypatch.setattr(config, "CACHE_DIR", str(folder))
    # Python takes two texts of one length, written in one second, for the same.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    compiled._warned.clear()
    yield folder
    compiled._warned.clear()


def module_of(tmp_path, step=1, text=KERNEL):
    """A module with one compiled function, imported anew as a new process would."""
    path = tmp_path / "sample.py"
    path.write_text(text.format(step=step))
    spec = importlib.util.spec_from_file_location("sample", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files(cache):
    return sorted(path for path in cache.rglob("*") if path.is_file())


def hits(module):
    return sum(module.kernel.stats.cache_hits.values())


def test_compiled_once_loaded_later(tmp_path, cache):
    assert module_of(tmp_path).kernel(1) == 2
    again = module_of(tmp_path)
    assert again.kernel(1) == 2 and hits(again) == 1
    assert len(files(cache)) == 1


DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "one bit": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "one bit of the checksum": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "text": lambda data: b"\xff\xfe not code",
    "longer": lambda data: data + b"\0",
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_costs_one_warning_and_is_made_anew(tmp_path, cache, damage):
    module_of(tmp_path).kernel(1)
    (path,) = files(cache)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.warns(UserWarning, match="is damaged.*NUMBA_CACHE_DIR") as caught:
        assert module_of(tmp_path).kernel(1) == 2
    assert len(caught) == 1
    mended = module_of(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mended.kernel(1) == 2 and hits(mended) == 1


@pytest.mark.slow
@pytest.mark.parametrize("same_size_and_time", [False, True])
def test_another_constant_is_another_function(tmp_path, cache, same_size_and_time):
    """Nor is old code run when the new one could not be written."""
    assert module_of(tmp_path, step=1).kernel(1) == 2
    (old,) = files(cache)
    source = tmp_path / "sample.py"
    time = source.stat().st_mtime_ns
    new = module_of(tmp_path, step=5)
    if same_size_and_time:
        os.utime(source, ns=(time, time))
    old.parent.chmod(0o500)
    try:
        if not os.access(old.parent, os.W_OK):
            with pytest.warns(UserWarning, match="cannot be kept"):
                assert new.kernel(1) == 6
            assert module_of(tmp_path, step=5).kernel(1) == 6
    finally:
        old.parent.chmod(0o700)
    assert module_of(tmp_path, step=5).kernel(1) == 6
    (only,) = files(cache)
    assert only != old, "the code of the earlier state is cleared away"


def test_what_decides_the_code_is_in_its_key():
    def of(step, function, **options):
        space = {"STEP": step, "np": np}
        exec(textwrap.dedent(function), space)
        return compiled.content(space["f"], options)

    plain = "def f(x): return x + STEP"
    keys = [
        of(1, plain), of(1.0, plain), of(np.float32(1), plain), of(2, plain), of((1,), plain),
        of(np.ones(2), plain), of(np.zeros(2), plain), of(1, plain, fastmath={"nsz"}),
        of(1, plain, fastmath={"nsz", "arcp"}), of(1, "def f(x): return x - STEP"),
        of(1, "def f(x): return x + 7"), of(1, "def f(x): return x + 8"),
        of(1, "def f(x): return np.sqrt(x)"), of(1, "def f(x): return np.cos(x)"),
        of(1, "def f(x, y=1): return x + STEP"), of(1, "def f(x, y=2): return x + STEP"),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert of(1, plain, fastmath={"nsz", "arcp"}) == of(1, plain, fastmath={"arcp", "nsz"})


def test_a_compiled_function_below_is_part_of_the_key():
    import numba

    def caller(inner):
        space = {"inner": inner}
        exec("def f(x): return inner(x)", space)
        return compiled.content(space["f"], {})

    keys = {caller(numba.njit(eval(f"lambda x: x + {step}"))) for step in (1, 2)}
    assert len(keys) == 2


def test_functions_that_call_themselves_and_each_other_have_a_key():
    def of(step):
        space = {}
        exec(f"def f(x): return g(x)\ndef g(x): return f(x) + f(g(x)) + {step}", space)
        return compiled.content(space["f"], {})

    assert of(1) == of(1) != of(2)


def test_constants_below_the_function_count(tmp_path, cache):
    text = KERNEL.replace("STEP = {step}\n", "") + "\n\nSTEP = {step}\n"
    assert module_of(tmp_path, 1, text).kernel(1) == 2
    assert module_of(tmp_path, 5, text).kernel(1) == 6


@pytest.mark.slow
def test_a_key_is_the_same_in_every_process():
    program = """
        from kd_cv.descriptor import compiled, fused
        for kernel in (fused.spatial_sums, fused.recombine, fused.finish):
            print(compiled.content(kernel.py_func, {"fastmath": {"a", "b", "c"}}))
    """
    said = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
            timeout=120, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(said) == 1 and len(said.pop().split()) == 3


@pytest.mark.slow
def test_two_types_at_once_leave_a_sound_cache(tmp_path, cache):
    module = module_of(tmp_path)
    values = [1, 1.5, np.float32(2), np.int8(3)]
    threads = [threading.Thread(target=module.kernel, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = module_of(tmp_path)
    assert [again.kernel(value) for value in values] == [value + 1 for value in values]
    assert hits(again) == len(values)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of POSIX")
@pytest.mark.parametrize("trouble", ["file size", "no folder", "a file in its place", "read-only"])
def test_descriptors_are_right_where_code_cannot_be_kept(tmp_path, trouble):
    folder = tmp_path / "cache"
    if trouble == "a file in its place":
        folder.write_text("")
    program = f"""
        import resource, sys, warnings
        from pathlib import Path
        if {trouble!r} == "file size":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10))
        import numba
        from numba.core import caching
        if {trouble!r} != "read-only":
            caching.CacheImpl._locator_classes = [caching.UserProvidedCacheLocator]
        from kd_cv.descriptor import compiled
        if {trouble!r} == "no folder":
            caching.CacheImpl._locator_classes = []
        if {trouble!r} == "read-only":
            def refuse(*arguments):
                raise OSError(30, "Read-only file system")
            compiled.CheckedFiles._open_for_write = refuse

        @compiled.njit()
        def kernel(x):
            return x + 1

        print(kernel(1), kernel(1.5))
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    run = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert run.stdout == "2 2.5\n", run.stderr
    assert run.stderr.count("UserWarning") == 1


@pytest.mark.slow
def test_an_upgrade_whose_code_could_not_be_written_does_not_run_the_old_one(tmp_path):
    """The package, changed after its code was kept, on a disk that takes no more."""
    package = tmp_path / "kd_cv"
    source = Path(compiled.__file__).parents[1]
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "weights").symlink_to(source.parent / "weights")
    program = """
        import resource, sys
        if sys.argv[1:]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 10, 20 << 10))
        import numpy as np
        from kd_cv.descriptor import fused
        V = np.ones((1, 4, fused.LANES), np.float32)
        out = np.empty((1, 4), np.float32)
        A = np.zeros((4, 0), np.float32)
        norm, Y = np.empty(fused.LANES, "f4"), np.empty(fused.LANES * fused.ROOM, "f4")
        fused.finish(V, A, A[0], norm, Y, out)
        print(round(float(out[0, 0]), 3))
    """
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments], cwd=tmp_path,
            capture_output=True, text=True, timeout=300, check=True, env=env,
        ).stdout.strip()  # fmt: skip

    assert run() == "0.5"
    fused = package / "descriptor" / "fused.py"
    text = fused.read_text()
    assert text.count("out[start + n, d] = V[block, d, n] * norm[n]") == 1
    fused.write_text(
        text.replace(
            "out[start + n, d] = V[block, d, n] * norm[n]",
            "out[start + n, d] = V[block, d, n] + norm[n]",
        )
    )
    assert run("full disk") == "1.5"
    assert run() == "1.5"
