"""MkDocs hook: cite docs/references.bib as ``[@key]`` and print it where ``{{ bibliography }}`` is.

pybtex reads and formats the entries. (mkdocs-bibtex would need pandoc for citations by author.)
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

from pybtex.database import BibliographyData, Entry, parse_file
from pybtex.plugin import find_plugin
from pybtex.richtext import Text

BIBLIOGRAPHY = Path(__file__).resolve().parent.parent / "docs" / "references.bib"


@cache
def load() -> BibliographyData:
    """Return the entries of the file."""
    return parse_file(str(BIBLIOGRAPHY))


def short(entry: Entry) -> str:
    """Return 'Author and Author, year', as a citation in the text reads."""
    names = [str(Text(*person.rich_last_names)) for person in entry.persons["author"]]
    who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who}, {entry.fields['year']}"


@cache
def listing() -> str:
    """Return all entries as a list, sorted by author."""
    style = find_plugin("pybtex.style.formatting", "plain")()
    backend = find_plugin("pybtex.backends", "html")()
    return "\n".join(
        f'- <span id="{entry.key}"></span>{entry.text.render(backend)}'
        for entry in style.format_bibliography(load())
    )


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace the citations and the bibliography's place in one page."""
    entries = load().entries
    target = posixpath.relpath("references.md", posixpath.dirname(page.file.src_uri) or ".")

    def cite(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in entries:
            raise KeyError(f"{page.file.src_uri} cites {key!r}, which is not in {BIBLIOGRAPHY}")
        return f"[{short(entries[key])}]({target}#{key})"

    return re.sub(r"\[@(\w+)\]", cite, markdown).replace("{{ bibliography }}", listing())
