from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tiny_dataset import make_dataset

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "tiny")
