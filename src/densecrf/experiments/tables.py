"""The paper's comparison table: who finds lower energies, how low, how fast, how accurate."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.experiments.metrics import accuracy, mean_iou
from densecrf.io.atomic import write_json, write_text

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from densecrf.experiments.records import Outcome

__all__ = ["FORMATS", "Comparison", "Row", "compare", "outcomes_csv", "write_comparison"]

_SUFFIXES = {"text": ".txt", "markdown": ".md", "csv": ".csv", "latex": ".tex"}


@dataclass(frozen=True)
class Row:
    """One method over all compared images.

    Attributes
    ----------
    method
        Its name.
    lower
        Share of images where its energy is strictly lower than each method's, in table order.
    energy, seconds
        Means over the images.
    cpu_seconds
        Mean processor time, or None where it was not kept.
    accuracy, iou
        Of all pixels together, or None without ground truth.
    gap, median_gap
        Of the certificates, or None where there are none.
    """

    method: str
    lower: tuple[float, ...]
    energy: float
    seconds: float
    cpu_seconds: float | None
    accuracy: float | None
    iou: float | None
    gap: float | None
    median_gap: float | None


@dataclass(frozen=True)
class Comparison:
    """A table of methods on the images that all of them have done.

    Attributes
    ----------
    rows
        One a method.
    images
        The images compared.
    left_out
        Images that some method has not done, and which methods those are.
    """

    rows: tuple[Row, ...]
    images: tuple[str, ...]
    left_out: dict[str, tuple[str, ...]]

    def to_text(self) -> str:
        """Render for the terminal, columns aligned."""
        cells = [self._header(), *(_texts(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])],
            )
            for line in cells
        ]
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:], "", self._note(), ""])

    def to_markdown(self) -> str:
        """Render as a Markdown table; the best of each column is bold."""
        best = self._best()
        lines = [self._header(), ["---", *["---:"] * (len(best) - 1)]]
        for index, row in enumerate(self.rows):
            lines.append(
                [
                    f"**{text}**" if index in best[column] else text
                    for column, text in enumerate(_texts(row))
                ]
            )
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"{table}\n\n{self._note()}\n"

    def to_latex(self) -> str:
        """Render as a LaTeX tabular (booktabs); the best of each column is bold."""
        best = self._best()
        count = len(self.rows)
        body = []
        for index, row in enumerate(self.rows):
            texts = [_latex(text) for text in _texts(row)]
            body.append(
                " & ".join(
                    rf"\textbf{{{text}}}" if index in best[column] else text
                    for column, text in enumerate(texts)
                )
                + r" \\"
            )
        lines = [
            rf"\begin{{tabular}}{{l{'r' * (len(best) - 1)}}}",
            r"\toprule",
            rf"& \multicolumn{{{count}}}{{c}}{{strictly lower energy than (\% of images)}} \\",
            " & ".join(_latex(text) for text in self._header()) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            f"% {self._note()}",
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Render as CSV with full precision; shares and metrics lie in 0..1, empty is unknown."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [row.method for row in self.rows]
        writer.writerow(["method", *(f"lower than {name}" for name in names), *_COLUMNS])
        for row in self.rows:
            values = [getattr(row, name) for name in _COLUMNS]
            writer.writerow([row.method, *row.lower, *("" if v is None else v for v in values)])
        return text.getvalue()

    def to_json(self) -> str:
        """Render as JSON with full precision."""
        rows = [
            {
                "method": row.method,
                "lower_than": dict(
                    zip((other.method for other in self.rows), row.lower, strict=True)
                ),
                **{name: getattr(row, name) for name in _COLUMNS},
            }
            for row in self.rows
        ]
        value = {"rows": rows, "images": self.images, "left_out": self.left_out}
        return json.dumps(value, indent=1, allow_nan=False) + "\n"

    def render(self, style: str) -> str:
        """Render in one of `FORMATS`."""
        if style not in FORMATS:
            raise ValueError(f"style={style!r} is unknown; choose one of {', '.join(FORMATS)}")
        return FORMATS[style](self)

    def _header(self) -> list[str]:
        return ["method", *(row.method for row in self.rows), *(c.title for c in _COLUMNS.values())]

    def _note(self) -> str:
        note = (
            f"{len(self.images)} images. Columns of methods: % of images where the row's energy "
            "is strictly lower."
        )
        if self.left_out:
            names = ", ".join(f"{i} ({', '.join(m)})" for i, m in self.left_out.items())
            note += f" Left out, as not done by all methods: {names}."
        return note

    def _best(self) -> list[set[int]]:
        """Give for every column of the table the rows that hold its best value."""
        best: list[set[int]] = [set() for _ in range(1 + len(self.rows))]
        for name, column in _COLUMNS.items():
            values = [getattr(row, name) for row in self.rows]
            known = [value for value in values if value is not None]
            top = (max if column.higher else min)(known, default=None)
            best.append({i for i, value in enumerate(values) if value is not None and value == top})
        return best


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "text": Comparison.to_text,
    "markdown": Comparison.to_markdown,
    "csv": Comparison.to_csv,
    "latex": Comparison.to_latex,
    "json": Comparison.to_json,
}


@dataclass(frozen=True)
class _Column:
    title: str
    show: Callable[[float], str]
    higher: bool = False


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _gap(value: float) -> str:
    return f"{100 * value:.3f}"


_COLUMNS: dict[str, _Column] = {
    "energy": _Column("mean energy", "{:,.1f}".format),
    "seconds": _Column("time (s)", "{:.2f}".format),
    "cpu_seconds": _Column("CPU (s)", "{:.2f}".format),
    "accuracy": _Column("accuracy (%)", _percent, higher=True),
    "iou": _Column("IoU (%)", _percent, higher=True),
    "gap": _Column("mean gap (%)", _gap),
    "median_gap": _Column("median gap (%)", _gap),
}


def compare(outcomes: Iterable[Outcome], methods: Sequence[str] | None = None) -> Comparison:
    """Compare methods on the images that all of them have done.

    Parameters
    ----------
    outcomes
        One a method and image, in any order.
    methods
        The methods and their order; by default as they first appear.

    Examples
    --------
    >>> from densecrf.experiments.records import Outcome
    >>> runs = [Outcome("mf", "a", 3.0, 0.1), Outcome("lp", "a", 2.0, 0.2)]
    >>> table = compare(runs)
    >>> [row.lower for row in table.rows]
    [(0.0, 0.0), (1.0, 0.0)]
    """
    by_method: dict[str, dict[str, Outcome]] = {name: {} for name in methods or ()}
    for outcome in outcomes:
        if methods is None or outcome.method in by_method:
            by_method.setdefault(outcome.method, {})[outcome.image] = outcome
    everything = sorted({image for done in by_method.values() for image in done})
    left_out = {
        image: missing
        for image in everything
        if (missing := tuple(m for m, done in by_method.items() if image not in done))
    }
    images = tuple(image for image in everything if image not in left_out)
    if not images:
        raise ValueError(
            f"no image was done by all of the methods ({', '.join(by_method) or 'none'})"
        )
    energies = np.array([[done[i].energy for i in images] for done in by_method.values()])
    rows = []
    for index, (method, done) in enumerate(by_method.items()):
        lower = (energies[index] < energies).mean(axis=1)
        rows.append(_row(method, tuple(map(float, lower)), [done[image] for image in images]))
    return Comparison(tuple(rows), images, left_out)


def _row(method: str, lower: tuple[float, ...], done: list[Outcome]) -> Row:
    spent = [o.details["cpu_seconds"] for o in done if "cpu_seconds" in o.details]
    gaps = [outcome.gap for outcome in done if outcome.gap is not None]
    counts = [outcome.confusion for outcome in done if outcome.confusion is not None]
    total = np.sum(counts, axis=0) if counts else np.zeros((1, 1))
    known = bool(total.sum())
    return Row(
        method,
        lower,
        energy=fmean(outcome.energy for outcome in done),
        seconds=fmean(outcome.seconds for outcome in done),
        cpu_seconds=fmean(spent) if len(spent) == len(done) else None,
        accuracy=float(accuracy(total)) if known else None,
        iou=float(mean_iou(total)) if known else None,
        gap=fmean(gaps) if gaps else None,
        median_gap=median(gaps) if gaps else None,
    )


def _texts(row: Row) -> list[str]:
    """Render a row for reading: rounded, a dash where nothing is known."""
    shares = [f"{100 * share:.0f}" for share in row.lower]
    values: list[Any] = [getattr(row, name) for name in _COLUMNS]
    shown = [
        "-" if value is None else column.show(value)
        for column, value in zip(_COLUMNS.values(), values, strict=True)
    ]
    return [row.method, *shares, *shown]


def _latex(text: str) -> str:
    for special in "&%$#_{}":
        text = text.replace(special, "\\" + special)
    return text


def outcomes_csv(outcomes: Iterable[Outcome]) -> str:
    """Render one line a method and image, full precision; empty is unknown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("energy", "seconds", "lower_bound", "gap")
    extra = ("cpu_seconds", "iterations", "ordered_calls", "converged", "best_constant", "constant")
    writer.writerow(["image", "method", *names, "accuracy", *extra])
    for outcome in sorted(outcomes, key=lambda o: (o.image, o.method)):
        values = [getattr(outcome, name) for name in names]
        known = outcome.confusion is not None and outcome.confusion.any()
        values.append(float(accuracy(outcome.confusion)) if known else None)
        values += [outcome.details.get(name) for name in extra]
        line = ["" if value is None else value for value in values]
        writer.writerow([outcome.image, outcome.method, *line])
    return text.getvalue()


def write_comparison(
    folder: str | os.PathLike[str],
    stem: str,
    comparison: Comparison,
    outcomes: Iterable[Outcome],
    about: Mapping[str, Any],
) -> list[Path]:
    """Write a table in every format, its images one by one, and what it is about.

    Parameters
    ----------
    folder, stem
        Where, and how the files' names begin.
    comparison, outcomes
        The table, and what it was made from.
    about
        Plain values: protocol, parameters, failures, ...

    Returns
    -------
    list of Path
        The files.
    """
    written = []
    for style, suffix in _SUFFIXES.items():
        written.append(Path(folder, stem + suffix))
        write_text(written[-1], comparison.render(style))
    written.append(Path(folder, f"{stem}-images.csv"))
    write_text(written[-1], outcomes_csv(outcomes))
    written.append(Path(folder, f"{stem}.json"))
    write_json(written[-1], {"about": dict(about), **json.loads(comparison.to_json())})
    return written
