"""MkDocs hook: formulas as MathML, which browsers show without a script and without the network."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def mathml(tex: str, *, display: bool) -> str:
    """Return a formula, given as it stands in HTML."""
    return convert(html.unescape(tex).strip(), display="block" if display else "inline")


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula of a page."""
    return FORMULA.sub(lambda m: mathml(m["tex"], display=m["tag"] == "div"), content)
