"""Griffe extension: the formulas of docstrings, written as Sphinx roles, as these pages write them.

Python's own tools show ``:math:`` roles as they are; the site hands them to tools/docs_mathematics.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

INLINE = re.compile(r":math:`([^`]+)`")
BLOCK = re.compile(r"^( *)\.\. math:: (.+?)(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


def as_markdown(text: str) -> str:
    r"""Return a docstring with formulas between \( and \), or \[ and \] on lines of their own.

    >>> as_markdown(":math:`k_{aa}`, (n,)")
    '\\(k_{aa}\\), (n,)'
    """
    text = BLOCK.sub(lambda m: f"{m[1]}\\[\n{m[1]}{m[2]}\n{m[1]}\\]", text)
    return INLINE.sub(lambda m: rf"\({m[1]}\)", text)


class Formulas(Extension):
    """Rewrites every docstring as it is collected."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
