"""Every package says what is public, with types and a docstring."""

import dataclasses
import importlib
import inspect
import re
import sys
import typing
from pathlib import Path

import pytest

import kd_cv

PACKAGE = Path(kd_cv.__file__).parent
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


# What is public -----------------------------------------------------------------------------------


def imported(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if "kd-cv[" in str(error):
            pytest.skip(str(error))
        raise


def faults(name, thing):
    """What a public name, or a method of a public class, lacks: a docstring, types."""
    if inspect.isclass(thing):
        if not (thing.__doc__ or "").strip():
            yield f"{name} has no docstring"
        for method, value in methods(thing).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            # What a decorator generates has no line of its own to describe.
            if not method.startswith("_") and inspect.isfunction(function):
                yield from faults(f"{name}.{method}", function)
        # Those of dataclasses are made of the types of their fields.
        if "__init__" in vars(thing) and not dataclasses.is_dataclass(thing):
            yield from untyped(f"{name}()", thing.__init__)
    elif inspect.isroutine(thing):
        if not (thing.__doc__ or "").strip():
            yield f"{name} has no docstring"
        for version in overloads(thing):
            yield from untyped(name, version)


def methods(cls):
    """What a class has of its own, or of another class of the package."""
    inherited = [base for base in cls.__mro__ if base is cls or base.__module__.startswith("kd_cv")]
    return {name: value for base in reversed(inherited) for name, value in vars(base).items()}


def overloads(function):
    """The signatures that a type checker sees: the function itself if it has one only."""
    known = getattr(typing, "get_overloads", lambda _: [])(function)  # from Python 3.11 on
    return known or [function]


def untyped(name, function):
    """Where a signature has no type, or one that says nothing."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.annotation is inspect.Parameter.empty:
            yield f"{name} has no type for {parameter.name}"
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        elif parameter.annotation in ("Any", typing.Any) and parameter.name not in FOREIGN:
            yield f"{name} says nothing of {parameter.name}: Any"
    if signature.return_annotation is inspect.Signature.empty:
        yield f"{name} has no type for what it returns"
    elif signature.return_annotation in ("Any", typing.Any):
        yield f"{name} says nothing of what it returns: Any"


#: Objects of extras that need not be installed: of Dask, h5py, FAISS and Matplotlib.
FOREIGN = ("client", "file", "faiss_index", "figure", "axes")


def promised():
    """The names that the reference of the documentation lists."""
    page = PACKAGE.parent / "docs/api.md"
    if not page.exists():
        return []
    names, module = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith(":::"):
            module = line.split()[1]
            names.append(module)
        elif member := re.match(r" +- (\w+)$", line):
            names = [name for name in names if name != module] + [f"{module}.{member[1]}"]
    return names


knows_overloads = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 does not remember overloads"
)


@knows_overloads
@pytest.mark.parametrize("name", promised())
def test_what_the_reference_promises_has_types_and_a_docstring(name):
    package, _, last = name.rpartition(".")
    thing = getattr(imported(package), last)
    assert not list(faults(name, thing))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_what_is_public(package):
    module = imported(f"kd_cv.{package}")
    assert isinstance(module.__all__, list) and (module.__doc__ or "").strip()
    lacking = [fault for n in module.__all__ for fault in faults(n, getattr(module, n))]
    assert not lacking


@knows_overloads
@pytest.mark.parametrize("name", kd_cv.__all__)
def test_every_public_name_has_types_and_a_docstring(name):
    try:
        thing = getattr(kd_cv, name)
    except ImportError as error:
        pytest.skip(str(error))
    assert not list(faults(name, thing))


def test_what_lacks_a_type_or_a_docstring_is_found():
    class Bare:
        def method(self, x: int, y):
            """A docstring."""

        @property
        def answer(self) -> int:
            return 42

        def vague(self, z: typing.Any) -> typing.Any:
            """A docstring."""

    assert list(faults("Bare", Bare)) == [
        "Bare has no docstring",
        "Bare.method has no type for y",
        "Bare.method has no type for what it returns",
        "Bare.answer has no docstring",
        "Bare.vague says nothing of z: Any",
        "Bare.vague says nothing of what it returns: Any",
    ]
