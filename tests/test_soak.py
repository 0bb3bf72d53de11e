"""The soak, much reduced: it runs to its end and finds nothing, or what is there to be found."""

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

from scribbling import Page

SOAK = Path(__file__).parents[1] / "tools" / "soak.py"
SOAK_APP = SOAK.with_name("soak_app.py")


@pytest.fixture
def soak_app():
    """Return the module of the app's soak."""
    pytest.importorskip("starlette")
    specification = importlib.util.spec_from_file_location("soak_app", SOAK_APP)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


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


def test_the_soak_of_the_app_finds_memory_that_grows(soak_app):
    rng = random.Random(0)
    flat = [(rng.uniform(280, 420), 3.0) for _ in range(60)]
    leaking = [(server + 4 * minute, 3.0) for minute, (server, _) in enumerate(flat)]
    swelling = [(server, 3.0 + 0.1 * minute) for minute, (server, _) in enumerate(flat)]
    assert soak_app.growth(flat) == []
    assert soak_app.growth(leaking)[0].startswith("server: memory grew")
    assert soak_app.growth(swelling)[0].startswith("heap: memory grew")


@pytest.mark.parametrize("lost", [True, False])
def test_the_soak_of_the_app_finds_strokes_that_are_lost(soak_app, browser, tmp_path, lost):
    from densecrf.app.store import STATE
    from densecrf.io import write_image
    from scribbling import scene

    write_image(tmp_path / "scene.png", scene())
    context = browser.new_context()
    it = soak_app.Soak(str(tmp_path), Page(context.new_page()), seed=0, longest=3.0)
    begin = it.start

    def forgetful(image):
        (tmp_path / STATE / "scene.png.json").unlink()
        begin(image)

    try:
        it.page.press("1")
        it.page.draw((0.1, 0.1), (0.9, 0.1))
        it.page.wait(strokes=1, saved="yes")
        it.start = forgetful if lost else begin
        it.kill()
    finally:
        it.running.stop()
        context.close()
    assert len(it.found) == lost
