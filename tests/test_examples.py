"""Every program of the gallery runs, draws its picture, and is shown on the page."""

from __future__ import annotations

import runpy
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
def test_example_runs_and_draws(script, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(script), "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
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
