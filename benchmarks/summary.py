"""The results that describe the present state, on one page: ``python -m benchmarks.summary``."""

from __future__ import annotations

from benchmarks import tables

#: Results, in order, and the rows of each that are shown: those that begin so; None: all.
PARTS: tuple[tuple[str, list[str] | None], ...] = (
    ("distributions", None),
    ("default", ["refine"]),
    ("settings", None),
    ("many_labels", None),
    ("folder", None),
    ("threads", ["320 × 213"]),
    ("units", ["none"]),
    ("gpu", None),
)


def page() -> str:
    """Return the tables of the results that are there."""
    shown = [each for each in PARTS if (tables.RESULTS / f"{each[0]}.json").exists()]
    return "\n\n".join(tables.markdown(tables.read(name), only) for name, only in shown)


if __name__ == "__main__":
    print(page())
