"""MkDocs hook: formulas as MathML, which browsers show without a script and without the network."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

# The converter takes exponents of the plain fences for those of a small sign; these it groups.
FENCES = {
    r"\lVert": r"\left\|",
    r"\rVert": r"\right\|",
    r"\lvert": r"\left|",
    r"\rvert": r"\right|",
}
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def mathml(tex: str, *, display: bool) -> str:
    """Return a formula, given as it stands in HTML."""
    text = html.unescape(tex).strip()
    for plain, grouping in FENCES.items():
        text = text.replace(plain, grouping)
    return convert(text, display="block" if display else "inline")


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula of a page."""
    return FORMULA.sub(lambda m: mathml(m["tex"], display=m["tag"] == "div"), content)
