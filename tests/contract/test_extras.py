"""A package that is not installed is named with the extra of kd-cv that brings it."""

import importlib
import sys

import pytest


def call(module, function, *arguments):
    return lambda: getattr(importlib.import_module(module), function)(*arguments)


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        (
            "torch",
            call("experiments.protocols.candidates", "kornia_candidate", "SIFTDescriptor"),
            "torch",
        ),
        ("torch", call("kd_cv.whitening.files", "load_pth", "mkd-concat-64.pth"), "torch"),
        ("skimage", call("kd_cv.cli.pair", "example_pair"), "cli"),
        ("skimage", call("experiments.benchmarks.inputs", "load_inputs"), "cli"),
        ("distributed", call("kd_cv.collection.cluster", "_distributed"), "cluster"),
        ("threadpoolctl", call("kd_cv.collection.cluster", "_single_threaded", 1, abs), "cluster"),
        ("h5py", call("kd_cv.collection.store", "load_h5py"), "features"),
        ("faiss", call("kd_cv.collection.retrieval", "_faiss"), "retrieval"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, use, extra):
    monkeypatch.setitem(sys.modules, package, None)  # importing it now raises ImportError
    with pytest.raises(ImportError, match=rf"kd-cv\[{extra}\]"):
        use()


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("kd_cv.viz.style", "matplotlib", "cli"),
        ("kd_cv.nn.module", "torch", "torch"),
        ("kd_cv.nn.lafs", "torch", "torch"),
        ("kd_cv.nn.detector", "torch", "torch"),
        ("kd_cv.nn.sampling", "torch", "torch"),
        ("kd_cv.nn.feature", "torch", "torch"),
        ("kd_cv.nn.export", "torch", "torch"),
    ],
)
def test_a_module_that_cannot_do_without_a_package_says_so(monkeypatch, module, package, extra):
    for name in (module, module.rpartition(".")[0]):  # as if neither had been imported yet
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"kd-cv\[{extra}\]"):
        importlib.import_module(module)
