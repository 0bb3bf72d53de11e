"""MkDocs hook: cite docs/references.bib as ``[@key]`` and print it where ``{{ bibliography }}`` is.

Understands the plain BibTeX of that one file: ``name = {value}`` fields, one to a line.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from pathlib import Path
from typing import Any

BIBLIOGRAPHY = Path(__file__).resolve().parent.parent / "docs" / "references.bib"
ACCENTS = {"'": "\u0301", "`": "\u0300", '"': "\u0308"}


def plain(text: str) -> str:
    """Turn BibTeX's accents, braces and dashes into plain text."""
    text = re.sub(
        r"\{\\(['`\"])(\w)\}",
        lambda m: unicodedata.normalize("NFC", m.group(2) + ACCENTS[m.group(1)]),
        text,
    )
    return text.replace("{", "").replace("}", "").replace("--", "–")


def load() -> dict[str, dict[str, str]]:
    """Return the fields of every entry, by key."""
    entries = re.findall(r"@\w+\{(\w+),\n(.*?)\n\}", BIBLIOGRAPHY.read_text("utf-8"), re.DOTALL)
    return {
        key: {name: plain(value) for name, value in re.findall(r"(\w+)\s*= \{(.*)\},", body)}
        for key, body in entries
    }


def short(entry: dict[str, str]) -> str:
    """Return 'Author and Author, year', as a citation in the text reads."""
    names = [author.split(",")[0] for author in entry["author"].split(" and ")]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who}, {entry['year']}"


def full(key: str, entry: dict[str, str]) -> str:
    """Return one item of the bibliography."""
    authors = [" ".join(reversed(a.split(", "))) for a in entry["author"].split(" and ")]
    where = entry.get("journal") or entry.get("booktitle", "")
    if "volume" in entry:
        where += f" {entry['volume']}"
    if "number" in entry:
        where += f"({entry['number']})"
    if "pages" in entry:
        where += f":{entry['pages']}"
    parts = [", ".join(authors), f"*{entry['title']}*", where, entry["year"]]
    return f'- <span id="{key}"></span>' + ". ".join(part for part in parts if part) + "."


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace the citations and the bibliography's place in one page."""
    entries = load()
    target = posixpath.relpath("references.md", posixpath.dirname(page.file.src_uri) or ".")

    def cite(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in entries:
            raise KeyError(f"{page.file.src_uri} cites {key!r}, which is not in {BIBLIOGRAPHY}")
        return f"[{short(entries[key])}]({target}#{key})"

    listing = "\n".join(full(key, entry) for key, entry in sorted(entries.items()))
    return re.sub(r"\[@(\w+)\]", cite, markdown).replace("{{ bibliography }}", listing)
