"""The soak, much reduced: it runs to its end and finds nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "tools" / "soak.py"
SOAK_APP = SOAK.with_name("soak_app.py")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_the_soak_runs_to_its_end():
    pytest.importorskip("PIL")
    command = [sys.executable, SOAK, "--solves", "40", "--kills", "2", "--images", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "40 solves" in ended.stdout
    assert "killed 2 times" in ended.stdout
    assert ended.stdout.rstrip().endswith("nothing found")


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_the_soak_of_the_app_runs_to_its_end():
    pytest.importorskip("skimage")
    command = [sys.executable, SOAK_APP, "--minutes", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.rstrip().endswith("nothing found")
