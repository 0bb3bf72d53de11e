"""Griffe extension: docstrings as these pages write them.

Formulas, which Python's own tools show as ``:math:`` roles, are handed to tools/docs_mathematics.
Parameters that share a description get an entry each, with a type and a default of its own.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

INLINE = re.compile(r":math:`([^`]+)`")
BLOCK = re.compile(r"^( *)\.\. math:: (.+?)(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
GROUP = re.compile(
    r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)+)(?P<type> : .+)?\n(?P<body>(?:(?:[ ]{4}.*)?\n?)+)",
    re.MULTILINE,
)


def one_by_one(text: str) -> str:
    r"""Return a docstring in which every parameter has an entry of its own.

    >>> one_by_one("Parameters\n----------\na, b : int\n    Numbers.").splitlines()[2:]
    ['a : int', '    Numbers.', 'b : int', '    Numbers.']
    """
    before, heading, rest = text.partition("Parameters\n----------\n")
    section = re.split(r"^(?=\w.*\n-{3,}$)", rest, maxsplit=1, flags=re.MULTILINE)

    def split(group: re.Match[str]) -> str:
        body = group["body"].rstrip("\n")
        entries = [f"{name}{group['type'] or ''}\n{body}" for name in group["names"].split(", ")]
        return "\n".join(entries) + group["body"][len(body) :]

    return before + heading + "".join([GROUP.sub(split, section[0]), *section[1:]])


def as_markdown(text: str) -> str:
    r"""Return a docstring with formulas between \( and \), or \[ and \] on lines of their own.

    >>> as_markdown(":math:`k_{aa}`, (n,)")
    '\\(k_{aa}\\), (n,)'
    """
    text = BLOCK.sub(lambda m: f"{m[1]}\\[\n{m[1]}{m[2]}\n{m[1]}\\]", text)
    return INLINE.sub(lambda m: rf"\({m[1]}\)", text)


class Docstrings(Extension):
    """Rewrites every docstring as it is collected."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(one_by_one(obj.docstring.value))
