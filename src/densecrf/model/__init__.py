"""The energy: unaries, kernels, costs of pairs of labels, and the numbers that they are made of."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densecrf.model import presets, scribbles
    from densecrf.model.crf import DenseCRF

__all__ = ["DenseCRF", "presets", "scribbles"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: modules below `DenseCRF` import this package, too."""
    if name == "DenseCRF":
        return import_module("densecrf.model.crf").DenseCRF
    if name in __all__:
        return import_module(f"densecrf.model.{name}")
    raise AttributeError(f"module 'densecrf.model' has no attribute {name!r}")
