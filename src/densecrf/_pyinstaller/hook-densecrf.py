"""PyInstaller's hook: public names are imported on first use, which it cannot see by itself."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

_OPTIONAL = (
    "densecrf.torch",
    "densecrf.drop_in.monai",
    "densecrf.cli",
    "densecrf.app",
    "densecrf.widget",
    "densecrf.napari",
)


def _runs_without_extras(name: str) -> bool:
    return not name.startswith((*_OPTIONAL, "densecrf._pyinstaller", "densecrf.__main__"))


hiddenimports = ["densecrf._native", *collect_submodules("densecrf", _runs_without_extras)]
datas = collect_data_files("densecrf")
