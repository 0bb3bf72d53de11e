"""Everything that a folder of results holds, as one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecrf import __version__
from densecrf.io.atomic import write_text
from densecrf.io.errors import FileFormatError

if TYPE_CHECKING:
    import os

__all__ = ["build_report", "write_report"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff }
h1, h2 { font-weight: 600 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block;
        overflow-x: auto }
th, td { padding: .25rem .4rem; text-align: right; border-bottom: 1px solid #eee;
         white-space: nowrap }
th:first-child, td:first-child { text-align: left }
td.best { font-weight: 700 } img { max-width: 100% } figure { margin: 1rem 0 }
figcaption, .note { color: #555; font-size: 13px }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 }
  th, td { border-color: #333 } h2 { border-color: #444 } figcaption, .note { color: #aaa }
  img { background: #fff } }
"""

_COLUMNS: dict[str, tuple[str, float, str]] = {
    "energy": ("mean energy", 1, ",.1f"),
    "seconds": ("time (s)", 1, ".2f"),
    "cpu_seconds": ("CPU (s)", 1, ".2f"),
    "accuracy": ("accuracy (%)", 100, ".2f"),
    "iou": ("IoU (%)", 100, ".2f"),
    "gap": ("mean gap (%)", 100, ".3f"),
    "median_gap": ("median gap (%)", 100, ".3f"),
}
_HIGHER = ("accuracy", "iou")
_TITLES = {
    "spread": "Distance from the best bound",
    "curves": "Energy against time",
    "speedup": "Speed-up of the ordered filter",
    "panel": "Labellings",
    "tune": "Tuning",
}


def write_report(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write the page of a folder of results."""
    write_text(path, build_report(folder))


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
        rows, about = raw["rows"], raw["about"]
        names = [row["method"] for row in rows]
        head = ["method", *names, *(title for title, *_ in _COLUMNS.values())]
        body = "".join(_line(row, rows, names) for row in rows)
        notes = [f"{len(raw['images'])} images.", *map(str, about.get("notes", ()))]
        left_out = raw["left_out"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(path, f"is not a table of this program ({error!r})") from error
    if left_out:
        notes.append(f"Left out, as not done by all methods: {', '.join(left_out)}.")
    cells = "".join(f"<th>{html.escape(text)}</th>" for text in head)
    return (
        f"<h2>{html.escape(str(about.get('title', path.stem)))}</h2>"
        f"<table><tr>{cells}</tr>{body}</table>"
        '<p class="note">Columns of methods: % of images where the row\'s energy is strictly '
        f"lower. {html.escape(' '.join(notes))}</p>"
    )


def _line(row: dict[str, Any], rows: list[dict[str, Any]], names: list[str]) -> str:
    cells = [f"<td>{html.escape(row['method'])}</td>"]
    cells += [f"<td>{100 * row['lower_than'][name]:.0f}</td>" for name in names]
    for name, (_, factor, style) in _COLUMNS.items():
        known = [other[name] for other in rows if other[name] is not None]
        if row[name] is None:
            cells.append("<td>-</td>")
            continue
        top = (max if name in _HIGHER else min)(known)
        best = ' class="best"' if row[name] == top else ""
        cells.append(f"<td{best}>{format(factor * row[name], style)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _figure(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    note = path.with_suffix(".txt")
    caption = note.read_text("utf-8") if note.is_file() else path.stem
    text = html.escape(caption.strip())
    return (
        f'<figure><img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )
