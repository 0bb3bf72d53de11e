"""The torch examples run, at toy size, and show what they say."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.filterwarnings("ignore:the constant labelling")
def test_refining(monkeypatch, capsys):
    run("torch_refine.py", monkeypatch)
    assert re.search(r"\[1, 5, 96, 128\].*labels proven within", capsys.readouterr().out)
    code = (EXAMPLES / "torch_refine.py").read_text("utf-8").splitlines()
    assert sum(bool(line.strip()) for line in code if not line.startswith(('"""', "import"))) <= 12


def test_scribbles(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    picture = tmp_path / "scribbles.png"
    toy = ("--side", 32, "--share", 0.02, "--steps", 60)
    run("torch_scribbles.py", monkeypatch, "--output", picture, *toy)
    shares = re.findall(r": (0\.\d+) of unseen pixels right", capsys.readouterr().out)
    alone, with_loss = map(float, shares)
    assert with_loss > alone + 0.02
    assert picture.stat().st_size > 10_000
