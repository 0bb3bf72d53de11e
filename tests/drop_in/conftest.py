"""The software that the facade stands in for, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def pydensecrf():
    """The original's three modules."""
    if importlib.util.find_spec("pydensecrf") is None:
        pytest.skip("pydensecrf2 is not installed")
    return SimpleNamespace(
        densecrf=importlib.import_module("pydensecrf.densecrf"),
        eigen=importlib.import_module("pydensecrf.eigen"),
        utils=importlib.import_module("pydensecrf.utils"),
    )
