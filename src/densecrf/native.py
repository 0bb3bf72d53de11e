"""The compiled core, loaded on first use.

Nothing imports ``densecrf._native`` directly: `densecrf.torch` and the exact filter work without
it, and a broken installation raises an error with the remedy.
"""

from functools import cache
from importlib import import_module
from types import ModuleType

from densecrf.deadline import check_deadline

__all__ = ["core"]


@cache
def core() -> ModuleType:
    """Return the compiled module ``densecrf._native``.

    Raises
    ------
    ImportError
        If the module is missing or cannot be loaded, with the remedy.
    """
    try:
        module = import_module("densecrf._native")
    except ImportError as error:
        raise ImportError(_remedy(error), name="densecrf._native") from error
    module.set_check(check_deadline)
    return module


def _remedy(error: ImportError) -> str:
    """Explain why the compiled core could not be loaded and how to get it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "densecrf._native":
        return (
            "densecrf's compiled core (densecrf._native) is not installed. Install the package "
            "instead of importing its source tree: `pip install densecrf`, or `pip install .` in "
            'a checkout (needs a C++20 compiler). Without it, filter="exact" and densecrf.torch '
            "still work."
        )
    return (
        f"densecrf's compiled core (densecrf._native) could not be loaded: {error}. It was "
        "probably built for another Python or another machine; reinstall it with "
        "`pip install --force-reinstall --no-cache-dir densecrf`."
    )
