"""A library that is missing is named before any work is done."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from command_line import densecrf
from densecrf import DenseCRF
from densecrf.extras import EXTRAS
from tiny_dataset import make_dataset

ONE = ("images/a.png", "--probs", "probs/a.npy")


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("torch", ("fit", "--data", "data", "--device", "cpu")),
        ("matplotlib", ("compare", *ONE, "--out", "methods.png")),
        ("matplotlib", ("demo",)),
        ("skimage", ("demo",)),
        ("torch", ("segment", "images", "--probs", "probs", "--device", "cpu", "--adapt")),
        ("distributed", ("segment", "images", "--probs", "probs", "--scheduler", "tcp://n:1")),
        ("rasterio", ("segment", "image.npy", "--probs", "probs/a.npy", "--out", "labels.tif")),
        ("zarr", ("segment", "image.npy", "--probs", "probs/a.npy", "--out", "labels.zarr")),
        ("websockets", ("app", "images", "--no-browser")),
    ],
)
def test_a_missing_library_is_named_before_any_work(folder, monkeypatch, module, command):
    make_dataset(folder / "data")
    np.save("image.npy", np.zeros((24, 32, 3), np.uint8))
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    def solve(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr(DenseCRF, "__init__", solve)
    result = densecrf(*command)
    assert result.exit_code == 1, result.output
    library, extra = EXTRAS[module]
    assert f"needs {library}: pip install 'densecrf[{extra}]'" in result.output
