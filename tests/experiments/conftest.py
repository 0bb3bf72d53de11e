from __future__ import annotations

from pathlib import Path

import pytest

from tiny_dataset import make_dataset

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs that tests start import the experiments, which are not installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "tiny")
