"""MkDocs hook: figures that have a dark version, NAME-dark.png, follow the colour scheme."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FIGURE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<stem>[^)\s]+)\.png\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Show one of both versions, by Material's marks #only-light and #only-dark."""
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def both(figure: re.Match[str]) -> str:
        alt, stem = figure["alt"], figure["stem"]
        if not (folder / f"{stem}-dark.png").is_file():
            return figure[0]
        return f"![{alt}]({stem}.png#only-light)![{alt}]({stem}-dark.png#only-dark)"

    return FIGURE.sub(both, markdown)
