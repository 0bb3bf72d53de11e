"""The package as a whole: lazy exports, what importing it loads, the missing-core message."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import densecrf
from densecrf import native


def run_python(code: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return completed.stdout.strip()


@pytest.mark.parametrize("name", [n for n in densecrf.__all__ if n != "torch"])
def test_every_public_name_resolves(name):
    assert getattr(densecrf, name) is not None


def test_dir_lists_every_public_name():
    assert set(densecrf.__all__) <= set(dir(densecrf))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = densecrf.nonsense


def test_refine_stays_a_function_after_its_module_is_imported():
    code = (
        "import densecrf.refinement, densecrf; from densecrf import refine; "
        "print(callable(densecrf.refine), callable(refine))"
    )
    assert run_python(code) == "True True"


def test_import_loads_neither_the_core_nor_optional_packages():
    code = (
        "import sys, densecrf; "
        "heavy = {'densecrf._native', 'scipy', 'matplotlib', 'torch', 'PIL', 'typer'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run_python(code) == "[]"


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (
            ModuleNotFoundError("No module named 'densecrf._native'", name="densecrf._native"),
            "pip install densecrf",
        ),
        (ImportError("undefined symbol: x"), "undefined symbol: x.*--force-reinstall"),
    ],
)
def test_missing_core_says_what_to_do(monkeypatch, failure, remedy):
    def refuse(name):
        raise failure

    monkeypatch.setattr(native, "import_module", refuse)
    native.core.cache_clear()
    try:
        with pytest.raises(ImportError, match=remedy):
            native.core()
    finally:
        native.core.cache_clear()


def test_core_is_the_compiled_module():
    assert native.core() is importlib.import_module("densecrf._native")


def test_a_star_import_needs_no_extras():
    code = "from densecrf import *; DenseCRF, refine, certify"
    blocked = "import sys; sys.modules.update(dict.fromkeys(('torch', 'PIL', 'typer', 'optuna'))); "
    subprocess.run([sys.executable, "-c", blocked + code], check=True)
