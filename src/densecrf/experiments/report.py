"""Everything that a folder of results holds, as one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING

from densecrf import __version__
from densecrf.experiments.tables import Comparison
from densecrf.io.errors import FileFormatError

if TYPE_CHECKING:
    import os

__all__ = ["build_report"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff }
h1, h2 { font-weight: 600 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block;
        overflow-x: auto }
th, td { padding: .25rem .4rem; border-bottom: 1px solid #eee; white-space: nowrap }
img { max-width: 100% } figure { margin: 1rem 0 }
figcaption, .note { color: #555; font-size: 13px }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 }
  th, td { border-color: #333 } h2 { border-color: #444 } figcaption, .note { color: #aaa }
  img { background: #fff } }
"""
#: How the names of pictures begin, and the heading that they get.
_TITLES = {
    "gaps": "Distance from the best bound",
    "curves": "Energy against time",
    "speedup": "Speed-up of the ordered filter",
    "panel": "Labellings",
    "tune": "Tuning",
}


def build_report(folder: str | os.PathLike[str]) -> str:
    """Return the page: the tables (``table-*.json``), then the pictures with their notes.

    Raises
    ------
    FileFormatError
        A ValueError, when the folder holds no results or a table is broken.
    """
    root = Path(folder)
    tables = sorted(root.glob("table-*.json"))
    pictures = sorted(root.glob("*.png"))
    if not tables and not pictures:
        raise FileFormatError(root, "holds no results (table-*.json, *.png); make some first")
    parts = [_table(path) for path in tables]
    for kind, title in _TITLES.items():
        own = [path for path in pictures if path.name.startswith(kind)]
        if own:
            parts.append(f"<h2>{title}</h2>" + "".join(map(_figure, own)))
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>densecrf: reproduction</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>Dense CRFs: methods compared</h1>"
        f'<p class="note">densecrf {html.escape(__version__)}</p>\n{body}\n</body></html>\n'
    )


def _table(path: Path) -> str:
    try:
        raw = json.loads(path.read_text("utf-8"))
        comparison, about = Comparison.from_dict(raw), raw["about"]
        title = html.escape(str(about.get("title", path.stem)))
        notes = html.escape(" ".join([comparison.note(), *map(str, about.get("notes", ()))]))
        return f'<h2>{title}</h2>{comparison.render("html")}<p class="note">{notes}</p>'
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(path, f"is not a table of this program ({error!r})") from error


def _figure(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    note = path.with_suffix(".txt")
    caption = note.read_text("utf-8") if note.is_file() else path.stem
    return (
        f'<figure><img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(caption.strip())}</figcaption></figure>"
    )
