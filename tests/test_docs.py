"""Every Python block of the documentation runs, and every call of the command line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^( *)```(python|bash)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
# Calls that need what a page only speaks of, or take their time.
NOT_RUN = ("densecrf demo", "densecrf segment images/ --probs probs/ --out results/", "pip ")


def blocks(page):
    for match in BLOCK.finditer(page.read_text("utf-8")):
        line = page.read_text("utf-8")[: match.start()].count("\n") + 2
        yield match[2], textwrap.dedent(match[3]), line


PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if any(blocks(page))]


def run_commands(text):
    for line in text.splitlines():
        if not line.startswith("densecrf") or line.startswith(NOT_RUN):
            continue
        arguments = shlex.split(line)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "densecrf", *arguments],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_the_page_runs(page, tmp_path, monkeypatch, restore_modules):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p))
    namespace = {"__name__": "__main__"}
    for language, text, line in blocks(page):
        if language == "bash":
            run_commands(text)
        else:
            # Line numbers of a traceback are those of the page.
            exec(compile("\n" * (line - 1) + text, str(page), "exec"), namespace)


@pytest.fixture
def restore_modules():
    """Undo what a page registers under other packages' names."""
    before = {name: sys.modules.get(name) for name in list(sys.modules) if "pydensecrf" in name}
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "pydensecrf"]:
        if name in before:
            sys.modules[name] = before[name]
        else:
            del sys.modules[name]


def test_readme_has_ten_lines_of_code_and_links_that_lead_somewhere():
    readme = ROOT / "README.md"
    code = [text for language, text, _ in blocks(readme) if language == "python"]
    assert len(code) == 1
    assert len([line for line in code[0].splitlines() if line.strip()]) == 10
    for target in re.findall(r"\]\((?!https://)([^)]+)\)", readme.read_text("utf-8")):
        assert (ROOT / target).is_file(), target


def test_pages_are_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS).as_posix()) in navigation
