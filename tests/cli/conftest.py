"""Fixtures of the tests of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from command_line import write_examples

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three images with probabilities; the working directory."""
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path
