"""The check of the built documentation finds what it is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "check_site.py"
GOOD = '<h1 id="top"></h1><a href="other/#below">x</a><a href="#top">x</a><img src="a.png">'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<p id="below"><a href="../">home</a></p>')
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "index.html").write_text(GOOD)
    return tmp_path


def check(site):
    return subprocess.run(
        [sys.executable, str(TOOL), str(site)], check=False, capture_output=True, text=True
    )


def test_a_whole_site_passes_and_its_external_links_are_listed(site):
    (site / "index.html").write_text(GOOD + '<a href="https://example.org/x">x</a>')
    done = check(site)
    assert done.returncode == 0, done.stdout
    assert "https://example.org/x" in done.stdout


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ('<a href="missing/">x</a>', "missing/ leads nowhere"),
        ('<a href="other/#above">x</a>', "other/#above has no such anchor"),
        ('<img src="b.png">', "b.png leads nowhere"),
        ('<script src="https://example.org/x.js"></script>', "from elsewhere"),
        ('<a href="http://example.org">x</a>', "is not an https address"),
    ],
)
def test_what_is_broken_is_named(site, broken, message):
    (site / "index.html").write_text(GOOD + broken)
    done = check(site)
    assert done.returncode == 1
    assert message in done.stdout
