"""Optional libraries: the extra that installs each, and the error if one is missing."""

import sys
from importlib.util import find_spec

__all__ = ["check_installed"]

#: Modules, with the name of the library where that is another, and the extra that installs it.
EXTRAS = {
    "av": ("PyAV", "video"),
    "distributed": ("distributed", "large"),
    "h5py": ("h5py", "large"),
    "matplotlib": ("matplotlib", "plot"),
    "nibabel": ("nibabel", "large"),
    "optuna": ("optuna", "experiments"),
    "pydicom": ("pydicom", "medical"),
    "rasterio": ("rasterio", "large"),
    "skimage": ("scikit-image", "demo"),
    "tabulate": ("tabulate", "experiments"),
    "torch": ("PyTorch", "torch"),
    "websockets": ("websockets", "app"),
    "zarr": ("zarr", "large"),
}


def check_installed(purpose: str, *modules: str) -> None:
    """Raise ModuleNotFoundError if a library that will be imported later is missing.

    Call it before work whose result would be lost; nothing is imported here.

    Examples
    --------
    >>> check_installed("a picture", "matplotlib")
    """
    for module in modules:
        if (sys.modules[module] if module in sys.modules else find_spec(module)) is None:
            library, extra = EXTRAS[module]
            raise ModuleNotFoundError(
                f"{purpose} needs {library}: pip install 'densecrf[{extra}]'", name=module
            )
