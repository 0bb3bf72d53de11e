"""Write the tables of the documentation from ``benchmarks/results/*.json``.

    python -m benchmarks.tables

A page holds ``<!-- table: NAME -->`` and ``<!-- end -->``; the table of ``results/NAME.json``, with
its command, date and machine, replaces the lines between them. ``<!-- table: NAME, only: A, B -->``
takes the rows that begin with A or B.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(
    r"(?P<head><!-- table: (?P<name>[\w-]+)(?:, only: (?P<only>[^>]+?))? -->\n).*?<!-- end -->",
    re.DOTALL,
)


def pages() -> list[Path]:
    """Return the pages that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read(name: str) -> dict[str, Any]:
    """Return a result by its name."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return found


def markdown(result: dict[str, Any], only: list[str] | None = None) -> str:
    """Return a result as a table, and a line that says where it comes from."""
    rows = [row for row in result["rows"] if only is None or row[0].strip("`") in only]
    lines = [result["columns"], *rows]
    head, *body = ("| " + " | ".join(map(str, line)) + " |" for line in lines)
    table = "\n".join([head, "|" + "---|" * len(result["columns"]), *body])
    table = re.sub(r"(\d) (?=[%×smMG])", "\\1\N{NO-BREAK SPACE}", table)
    source = f"*{result['title']}. `{result['command']}`, {result['date']}, {result['machine']}.*"
    return f"{table}\n\n{source}"


def filled(text: str) -> str:
    """Return a page with its tables written anew."""

    def table(place: re.Match[str]) -> str:
        only = place["only"] and place["only"].split(", ")
        return f"{place['head']}{markdown(read(place['name']), only)}\n<!-- end -->"

    return PLACE.sub(table, text)


def main() -> None:
    """Write the tables of all pages."""
    for page in pages():
        text = page.read_text("utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
