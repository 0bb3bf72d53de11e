"""Pack the app for people without Python: a folder with everything in it, zipped (PyInstaller).

    python tools/portable.py              # dist/densecrf-app-VERSION-PLATFORM.zip
    python tools/portable.py --wheel WHEEL

Unpacked, ``densecrf-app/densecrf-app`` starts the app, with an image or folder as its argument if
wanted. It is built in an environment of its own from a wheel, as PyInstaller follows no editable
installation, and started once: it must serve its page and solve.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "portable"
NAME = "densecrf-app"
ENTRY = """\
import sys
from multiprocessing import freeze_support

from densecrf.cli import main

if __name__ == "__main__":
    freeze_support()
    sys.argv.insert(1, "app")
    main()
"""
#: Imported by name at run time, where PyInstaller cannot see it; and what the app does without.
COLLECTED = ("densecrf.app", "densecrf.cli", "densecrf.large", "uvicorn", "websockets")
LEFT_OUT = ("matplotlib", "tkinter", "IPython", "scipy", "torch", "pytest")


def run(*command: object) -> None:
    """Run a command; its output is shown where it fails."""
    ended = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{command}\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}")


def built_wheel() -> Path:
    """Build a wheel of the checkout."""
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", WORK, ROOT)
    (wheel,) = WORK.glob("densecrf-*.whl")
    return wheel


def packed(wheel: Path) -> Path:
    """Build the folder from a wheel; return the program in it."""
    venv.create(WORK / "venv", with_pip=True)
    python = WORK / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[app,medical]", "pyinstaller>=6")
    entry = WORK / "start.py"
    entry.write_text(ENTRY)
    options: list[object] = ["--noconfirm", "--onedir", "--name", NAME, "--log-level", "WARN"]
    options += ["--distpath", WORK, "--workpath", WORK / "parts", "--specpath", WORK]
    options += ["--copy-metadata", "densecrf"]
    for module in COLLECTED:
        options += ["--collect-submodules", module]
    for module in ("nibabel", "pydicom", "tifffile"):
        options += ["--hidden-import", module, "--collect-data", module]
    for module in LEFT_OUT:
        options += ["--exclude-module", module]
    run(python, "-m", "PyInstaller", *options, entry)
    return WORK / NAME / (f"{NAME}.exe" if sys.platform == "win32" else NAME)


def check(program: Path) -> None:
    """Start the program, and let it serve the page, the image, and labels from strokes."""
    folder = WORK / "images"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    rows = b"".join(bytes([30] * 20 + [220] * 20) for _ in range(32))
    (folder / "grey.bmp").write_bytes(b"P5 40 32 255\n" + rows)  # what it is, its content tells
    (folder / "densecrf-app").mkdir()
    state = {
        "format": "densecrf.strokes",
        "version": 1,
        "image": "grey.bmp",
        "depth": 1,
        "height": 32,
        "width": 40,
        "settings": {},
        "undone": [],
        "labels": [{"name": name, "color": "#808080"} for name in ("dark", "bright")],
        "strokes": [
            {"tool": "brush", "label": label, "size": 5, "points": [[x, 4], [x, 28]]}
            for label, x in ((0, 5), (1, 35))
        ],
    }
    (folder / "densecrf-app" / "grey.bmp.json").write_text(json.dumps(state))
    command = [str(program), str(folder), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]+/", url):
                raise SystemExit(f"{program} says {url!r} instead of its address")
            answers = {}
            for what in ("", "images", "export/labels?name=grey.bmp"):
                with urllib.request.urlopen(url + what, timeout=300) as answer:
                    answers[what] = answer.read()
        finally:
            process.terminate()
    page, names, labels = answers.values()
    if b"densecrf" not in page or b"grey.bmp" not in names or labels[:4] != b"\x89PNG":
        raise SystemExit(f"{program} serves no page, or no labels")


def main() -> None:
    """Build, check and zip."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="a wheel of this platform; by default built")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    wheel = arguments.wheel or built_wheel()
    program = packed(wheel)
    check(program)
    version = wheel.name.split("-")[1]
    name = f"{NAME}-{version}-{platform.system().lower()}-{platform.machine().lower()}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    archive = shutil.make_archive(str(arguments.out / name), "zip", WORK, NAME)
    size = Path(archive).stat().st_size
    print(f"{archive}: {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
