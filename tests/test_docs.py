"""Every Python block of the documentation runs, every call of the command line, and the output
that a page shows is what they print.

A block ```` ```text ```` after a block of code is its output, without times. `make docs-outputs`
writes it anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import textwrap
from pathlib import Path

import pytest
from benchmarks import tables

from command_line import densecrf

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>python|bash)\n(?P<code>.*?)^(?P=indent)```\n"
    r"(?:\n(?P=indent)```text\n(?P<output>.*?)^(?P=indent)```\n)?",
    re.DOTALL | re.MULTILINE,
)
# Calls that need what a page only speaks of, or take their time.
NOT_RUN = ("densecrf demo", "densecrf segment images/ --probs probs/ --out results/", "pip ")
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
TIME = re.compile(r"[\d.]+ m?s, |, [\d.]+ m?s$", re.MULTILINE)
# Lines about how a solver got there: their numbers may be off by a factor of two, others by 1 %.
EFFORT = re.compile(r"certificate|effort|ended|gap|at most")
WRITE = bool(os.environ.get("DENSECRF_WRITE_DOCS"))


def blocks(page):
    return list(BLOCK.finditer(page.read_text("utf-8")))


PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if blocks(page)]


def run_commands(text):
    printed = ""
    for line in text.splitlines():
        if not line.startswith("densecrf") or line.startswith(NOT_RUN):
            continue
        done = densecrf(*shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
        printed += done.stdout
    return printed


def run_python(text, page, line, namespace):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # Line numbers of a traceback are those of the page.
        exec(compile("\n" * line + text, str(page), "exec"), namespace)
    return printed.getvalue()


def value(text):
    return float(text.replace(",", "").rstrip("."))


def differences(shown, printed):
    """Compare line by line: words exactly, numbers within a tolerance."""
    lines = [[line.rstrip() for line in text.splitlines()] for text in (shown, printed)]
    if len(lines[0]) != len(lines[1]):
        return [f"{len(lines[0])} lines are shown, {len(lines[1])} are printed:\n{printed}"]
    found = []
    for old, new in zip(*lines, strict=True):
        tolerance = 1.0 if EFFORT.search(new) else 0.01
        pairs = zip(map(value, NUMBER.findall(old)), map(value, NUMBER.findall(new)), strict=False)
        same_words = NUMBER.sub("#", old).split() == NUMBER.sub("#", new).split()
        if not same_words or any(b != pytest.approx(a, rel=tolerance) for a, b in pairs):
            found.append(f"shown:   {old}\nprinted: {new}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_the_page_runs_and_prints_what_is_shown(
    page, tmp_path, monkeypatch, restore_modules
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p))
    monkeypatch.setenv("COLUMNS", "100")
    if "import torch" in page.read_text("utf-8"):
        torch = pytest.importorskip("torch")
        torch.set_num_threads(1)  # small problems: threads would cost more than they do
    namespace = {"__name__": "__main__"}
    text, outputs, found = page.read_text("utf-8"), {}, []
    for block in blocks(page):
        code = textwrap.dedent(block["code"])
        line = text[: block.start("code")].count("\n")
        bash = block["language"] == "bash"
        printed = run_commands(code) if bash else run_python(code, page, line, namespace)
        printed = TIME.sub("", printed)
        if block["output"] is not None:
            found += differences(textwrap.dedent(block["output"]), printed)
            outputs[block.span("output")] = textwrap.indent(printed, block["indent"])
    if WRITE:
        for (start, end), printed in reversed(outputs.items()):
            text = text[:start] + printed + text[end:]
        page.write_text(text, "utf-8")
        return
    assert not found, "\n".join([*found, "(`make docs-outputs` writes the outputs anew)"])


def test_outputs_are_compared_by_words_and_numbers():
    shown = "energy 1,000.0\neffort 26 iterations\n"
    assert not differences(shown, TIME.sub("", "energy 1,000.4\neffort 0.9 s, 31 iterations\n"))
    assert differences(shown, "energy 1,100.0\neffort 26 iterations\n")
    assert differences(shown, "cost 1,000.0\neffort 26 iterations\n")
    assert differences(shown, "energy 1,000.0\neffort 260 iterations\n")
    assert differences(shown, "energy 1,000.0\n")


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
    code = [block["code"] for block in blocks(readme) if block["language"] == "python"]
    assert len(code) == 1
    assert len([line for line in code[0].splitlines() if line.strip()]) == 10
    for target in re.findall(r"\]\((?!https://)([^)]+)\)", readme.read_text("utf-8")):
        assert (ROOT / target).is_file(), target


LONG = {"mathematics.md", "reproduction.md"}


def words(text):
    return sum(any(map(str.isalnum, word)) for word in text.split())


def test_pages_are_short():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    reading = navigation[navigation.index("nav:") : navigation.index("- Reference:")]
    counts = {
        page: words((DOCS / page).read_text("utf-8"))
        for page in re.findall(r"[\w/-]+\.md", reading)
        if (DOCS / page).exists()  # the notebooks are made by the build
    }
    assert not {page: n for page, n in counts.items() if n > 1200 and page not in LONG}
    assert sum(counts.values()) - counts["mathematics.md"] <= 15_000
    assert words((ROOT / "README.md").read_text("utf-8")) <= 900


def test_tables_are_those_of_the_results():
    for page in tables.pages():
        text = page.read_text("utf-8")
        assert tables.filled(text) == text, f"{page.name}: run python -m benchmarks.tables"


def test_pages_are_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS).as_posix()) in navigation


def test_the_architecture_page_and_the_tree_agree():
    page = (DOCS / "architecture.md").read_text("utf-8")
    package = ROOT / "src" / "densecrf"
    named = re.findall(r"`([\w/]+(?:\.py|\.cpp|/))`", page)
    for name in named:
        assert (package / name).exists() or (ROOT / name).exists(), f"{name} is no file or folder"
    modules = {path.name for path in package.glob("*.py")}
    modules |= {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert modules <= set(named), f"the page does not name {sorted(modules - set(named))}"
    picture = (DOCS / "images" / "architecture.svg").read_text("utf-8")
    words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"<text[^>]*>([^<]*)<", picture))))
    missing = {module.rstrip("/").removesuffix(".py") for module in modules} - words
    beside = {"__init__", "__main__", "_moved", "_pyinstaller", "cached", "native", "validation"}
    beside |= {"experiments"}  # a former place
    assert missing <= beside, missing - beside
