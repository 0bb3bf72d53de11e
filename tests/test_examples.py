"""Every program of the gallery runs, draws its picture, and is shown on the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "gallery.md").read_text("utf-8")
SCRIPTS = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if path.stem != "show" and not path.stem.startswith("torch_")  # tests/torch trains
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs_and_draws(script, tmp_path):
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    for name in (f"{script.stem}.png", f"{script.stem}-dark.png"):
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert 5_000 < len(picture) < 300_000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_gallery_shows_the_program_and_its_picture(script):
    assert f'--8<-- "examples/{script.name}"' in PAGE
    assert f"images/gallery/{script.stem}.png" in PAGE
    for name in (f"{script.stem}.png", f"{script.stem}-dark.png"):
        assert (ROOT / "docs" / "images" / "gallery" / name).is_file()
