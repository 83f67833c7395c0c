"""Numba's compiler with a cache that can be trusted, and that never stands in the way.

Numba keeps compiled code in files, but believes whatever it finds there: an index that is ahead of
its code runs old code, a damaged file makes every call fail. Here each compiled function is one
file. Its name says what was compiled (the function's code and constants, the types, the processor,
the versions), its last bytes are a checksum, and it appears whole or not at all. Whatever goes
wrong with it costs a compilation and one warning.

To compile a function, here or in another room:

    from kd_cv.descriptor.compiled import njit

    @njit(nogil=True, error_model="numpy")
    def kernel(image, out): ...

What a kernel calls must be compiled in the same way, and what it uses of its module must be
numbers, text, tuples or arrays of them: their values are part of the code.
"""

import hashlib
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

from kd_cv.parallel import held_at_fork

FORMAT = 1  # to be raised when the files mean something else
CHECKSUM = hashlib.sha256
SUFFIX = ".nbc"

_warned = threading.Event()

# A child that was forked while another thread compiled could never compile.
held_at_fork(global_compiler_lock.acquire, global_compiler_lock.release)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with the cache of this module; the options are Numba's."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if dispatcher is not function:  # as it is with NUMBA_DISABLE_JIT
            try:
                dispatcher._cache = CheckedCache(function, options)
            except Exception as error:
                _warn(f"no folder takes compiled code ({error})")
        return dispatcher

    return compiled


class CheckedCache(FunctionCache):
    """Numba's cache of one function, with one checked file for each signature."""

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__(function)  # chooses the folder, as NUMBA_CACHE_DIR may say
        self._cache_file = CheckedFiles(self._cache_path, function, options)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:
            _warn(f"compiled code in {self._cache_path} cannot be used ({_said(error)})")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn(f"compiled code cannot be kept in {self._cache_path} ({_said(error)})")


class CheckedFiles(IndexDataCacheFile):
    """One file for each signature and machine: <function>.<content>.<the rest of its key>.nbc"""

    def __init__(self, folder: str, function: Any, options: dict[str, Any]) -> None:
        name = f"{function.__module__}.{function.__qualname__}.{sys.implementation.cache_tag}"
        self._folder, self._function = Path(folder), re.sub("[<>]", "", name)
        super().__init__(folder, self._function, None)
        self._compiled = function, options

    @cached_property
    def _content(self) -> str:
        return content(*self._compiled)  # when it is called: what it uses may stand further down

    def load(self, key: Any) -> Any:
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        end = len(data) - CHECKSUM().digest_size
        if end <= 0 or CHECKSUM(data[:end]).digest() != data[end:]:
            raise ValueError(f"{path.name} is damaged")
        return self._load_data(path.name)  # the checksum lies behind the end of Numba's data

    def save(self, key: Any, data: Any) -> None:
        path, stored = self._path(key), self._dump(data)
        with self._open_for_write(str(path)) as file:
            file.write(stored + CHECKSUM(stored).digest())
        for other in self._folder.glob(f"{self._function}.*{SUFFIX}"):
            if not other.name.startswith(f"{self._function}.{self._content}."):
                other.unlink(missing_ok=True)  # of another state of this function

    def _path(self, key: Any) -> Path:
        signature, target, _ = key
        other = (FORMAT, numba.__version__, sys.version, np.__version__, str(signature), target)
        return self._folder / f"{self._function}.{self._content}.{_digest(repr(other))}{SUFFIX}"


def content(function: Callable[..., Any], options: dict[str, Any]) -> str:
    """A digest of all that decides what a function compiles to, but for types and machine."""
    said = sorted((name, _stated(value)) for name, value in options.items())
    return _digest(repr((said, _stated(function))))


def _stated(value: Any, inside: tuple[Any, ...] = ()) -> Any:
    """A value as text that is the same in every process, and another for another value.

    inside: the functions that are being stated, which may call each other.
    """
    if isinstance(value, types.CodeType):
        return value.co_code.hex(), value.co_names, value.co_varnames, _stated(value.co_consts)
    if isinstance(value, types.FunctionType):
        if value in inside:
            return value.__qualname__
        inside = (*inside, value)
        used = [name for name in _names(value.__code__) if name in value.__globals__]
        held = [(name, _stated(value.__globals__[name], inside)) for name in used]
        cells = [_stated(cell.cell_contents) for cell in value.__closure__ or ()]
        return _stated(value.__code__), _stated(value.__defaults__), held, cells
    if hasattr(value, "py_func"):  # compiled by Numba
        return _stated(value.py_func, inside)
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType | type):
        return value.__name__
    if isinstance(value, tuple):
        return tuple(map(_stated, value))
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes().hex()
    return type(value).__name__, repr(value)


def _names(code: types.CodeType) -> list[str]:
    """The names that a code uses, with those of the codes inside it."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return sorted({*code.co_names}.union(*map(_names, inner)))


def _digest(text: str) -> str:
    return CHECKSUM(text.encode()).hexdigest()[:16]


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _warn(message: str) -> None:
    if not _warned.is_set():
        _warned.set()
        warnings.warn(
            f"{message}: kd_cv compiles in every process, which takes some seconds. "
            "NUMBA_CACHE_DIR names another folder.",
            stacklevel=2,
        )
