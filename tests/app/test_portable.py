"""The app packed for people without Python."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PORTABLE = Path(__file__).parents[2] / "tools" / "portable.py"


@pytest.mark.slow
def test_the_packed_app_serves_its_page_and_solves(tmp_path):
    """`tools/portable.py` starts what it built, and zips it only where it works."""
    command = [sys.executable, PORTABLE, "--out", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (archive,) = tmp_path.glob("densecrf-app-*.zip")
    names = zipfile.ZipFile(archive).namelist()
    assert any(name.startswith("densecrf-app/densecrf-app") for name in names)
