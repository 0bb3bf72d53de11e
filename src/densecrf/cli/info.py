"""``densecrf info``: version, processor, GPU, methods and presets of this installation."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from densecrf import __version__
from densecrf.cli import options as o
from densecrf.cli.reports import output, print_json
from densecrf.model.presets import PRESETS
from densecrf.native import core
from densecrf.solvers import METHODS

__all__ = ["info"]

ABSENT = "(absent)"
OPTIONAL = ("numpy", "pillow", "matplotlib", "torch", "triton", "optuna", "scikit-image")


def info(as_json: o.Json = False) -> None:
    """Show version, processor features, threads, GPU, methods and presets."""
    facts = _facts()
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = "; ".join(f"{key}: {item}" for key, item in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        output.print(f"{name:<12} {value}")


def _facts() -> dict[str, Any]:
    try:
        native = {"instructions": core().isa(), "threads": core().available_threads()}
    except ImportError as error:
        native = {"missing": str(error)}
    return {
        "densecrf": __version__,
        "core": native,
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in OPTIONAL},
        "gpu": _gpu(),
        "methods": list(METHODS),
        "presets": {name: preset.about for name, preset in PRESETS.items()},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT


def _gpu() -> str:
    if _version("torch") == ABSENT:
        return 'unknown: PyTorch is not installed (pip install "densecrf[torch]")'
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"unknown: PyTorch cannot be imported ({str(error) or type(error).__name__})"

    if not torch.cuda.is_available():
        return "none that PyTorch can use"
    return str(torch.cuda.get_device_name())
