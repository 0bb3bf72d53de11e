"""Drop-in modules for programs written for other software: pydensecrf, SimpleCRF and MONAI."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densecrf.drop_in import monai, pydensecrf, simplecrf

__all__ = ["monai", "pydensecrf", "simplecrf"]


def __getattr__(name: str) -> Any:
    """Import a module when it is first used: MONAI's needs PyTorch."""
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
