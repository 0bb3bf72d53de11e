"""Small images are cut, too: into tiles of the size that a test asks for."""

import pytest

from densecrf.large import planning


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(planning, "worthwhile_sides", lambda asked, *_: asked)
