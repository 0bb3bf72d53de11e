"""Where PyInstaller finds the hook that packs densecrf into applications."""

from pathlib import Path

__all__ = ["hook_directories"]


def hook_directories() -> list[str]:
    """Return the folder of the hook; PyInstaller asks for it by an entry point."""
    return [str(Path(__file__).parent)]
