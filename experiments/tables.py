"""The paper's comparison table: who finds lower energies, how low, how fast, how accurate."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.io.atomic import write_json, write_text
from densecrf.metrics import METRICS, Interval, accuracy, bootstrap, mean_iou
from densecrf.validation import check_choice

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from experiments.outcome import Outcome

__all__ = [
    "FORMATS",
    "Comparison",
    "Row",
    "compare",
    "comparison_files",
    "differences",
    "outcomes_csv",
    "write_comparison",
]

#: What a table can be rendered as.
FORMATS = ("text", "markdown", "csv", "latex", "json")

#: Columns after those of the methods: field of `Row`, title, factor, format, higher is better.
_COLUMNS = (
    ("energy", "mean energy", 1, ",.1f", False),
    ("seconds", "time (s)", 1, ".2f", False),
    ("cpu_seconds", "CPU (s)", 1, ".2f", False),
    ("accuracy", "accuracy (%)", 100, ".2f", True),
    ("iou", "IoU (%)", 100, ".2f", True),
    ("gap", "mean gap (%)", 100, ".3f", False),
    ("median_gap", "median gap (%)", 100, ".3f", False),
)
_SUFFIXES = {"text": ".txt", "markdown": ".md", "csv": ".csv", "latex": ".tex"}
#: tabulate's name of a format, and what goes before and after the best value of a column.
_STYLES = {
    "text": ("simple", "", ""),
    "markdown": ("pipe", "**", "**"),
    "latex": ("latex_booktabs", r"\textbf{", "}"),
}
_BEST = "\2", "\3"  # stand for those while tabulate escapes the cells


@dataclass(frozen=True)
class Row:
    """One method over all compared images; what is unknown is None."""

    method: str
    lower_than: Mapping[str, float]  # share of images of strictly lower energy, by other method
    energy: float  # mean over the images, as are the times
    seconds: float
    cpu_seconds: float | None
    accuracy: float | None  # of all pixels together, as is the IoU
    iou: float | None
    gap: float | None  # mean over the certificates
    median_gap: float | None


@dataclass(frozen=True)
class Comparison:
    """A table of methods on the images that all of them have done."""

    rows: Sequence[Row]
    images: Sequence[str]
    left_out: Mapping[str, Sequence[str]]  # images, and the methods that have not done them

    def render(self, style: str) -> str:
        """Render in one of `FORMATS`.

        CSV and JSON keep every digit, with shares and metrics in 0..1; the others round, and
        LaTeX and Markdown set the best value of each column in bold.
        """
        check_choice("style", style, tuple(FORMATS))
        if style == "json":
            return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"
        if style == "csv":
            return _csv(
                ["method", *(f"lower than {row.method}" for row in self.rows),
                 *(name for name, *_ in _COLUMNS)],
                ([row.method, *row.lower_than.values(), *(getattr(row, c[0]) for c in _COLUMNS)]
                 for row in self.rows),
            )  # fmt: skip
        try:
            from tabulate import tabulate
        except ImportError as error:
            raise ImportError("tables need tabulate: pip install -e '.[experiments]'") from (error)
        form, before, after = _STYLES[style]
        table = tabulate(
            self._cells(mark=bool(before)),
            ["method", *(row.method for row in self.rows), *(title for _, title, *_ in _COLUMNS)],
            form,
            disable_numparse=True,
            colalign=["left", *["right"] * (len(self.rows) + len(_COLUMNS))],
        )
        table = table.replace(_BEST[0], before).replace(_BEST[1], after)
        note = f"% {self.note()}" if style == "latex" else f"\n{self.note()}"
        return f"{table}\n{note}\n"

    def note(self) -> str:
        """Describe how many images were compared, what the shares mean, and what was left out."""
        note = (
            f"{len(self.images)} images. Columns of methods: % of images where the row's energy "
            "is strictly lower."
        )
        if self.left_out:
            names = ", ".join(f"{i} ({', '.join(m)})" for i, m in self.left_out.items())
            note += f" Left out, as not done by all methods: {names}."
        return note

    def _cells(self, *, mark: bool) -> list[list[str]]:
        """Return rounded texts, "-" where a value is unknown, the best of each column marked."""
        lines = [[r.method, *(f"{100 * v:.0f}" for v in r.lower_than.values())] for r in self.rows]
        for name, _, factor, form, higher in _COLUMNS:
            values = [getattr(row, name) for row in self.rows]
            best = (max if higher else min)((v for v in values if v is not None), default=None)
            for line, value in zip(lines, values, strict=True):
                text = "-" if value is None else format(factor * value, form)
                line.append(text.join(_BEST) if mark and value is not None and value == best
                            else text)  # fmt: skip
        return lines


def compare(outcomes: Iterable[Outcome], methods: Sequence[str] | None = None) -> Comparison:
    """Compare methods on the images that all of them have done.

    Parameters
    ----------
    outcomes
        One per method and image, in any order.
    methods
        The methods and their order; by default as they first appear.

    Examples
    --------
    >>> from experiments.outcome import Outcome
    >>> runs = [Outcome("mf", "a", 3.0, 0.1), Outcome("lp", "a", 2.0, 0.2)]
    >>> [row.lower_than for row in compare(runs).rows]
    [{'mf': 0.0, 'lp': 0.0}, {'mf': 1.0, 'lp': 0.0}]
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
    energies = {m: np.array([done[i].energy for i in images]) for m, done in by_method.items()}
    rows = [
        _row(
            method,
            {name: float((energies[method] < other).mean()) for name, other in energies.items()},
            [done[image] for image in images],
        )
        for method, done in by_method.items()
    ]
    return Comparison(tuple(rows), images, left_out)


def _row(method: str, lower_than: Mapping[str, float], done: list[Outcome]) -> Row:
    spent = [o.details["cpu_seconds"] for o in done if "cpu_seconds" in o.details]
    gaps = [outcome.gap for outcome in done if outcome.gap is not None]
    counts = [outcome.confusion for outcome in done if outcome.confusion is not None]
    total = np.sum(counts, axis=0) if counts else np.zeros((1, 1))
    known = bool(total.sum())
    return Row(
        method,
        lower_than,
        energy=fmean(outcome.energy for outcome in done),
        seconds=fmean(outcome.seconds for outcome in done),
        cpu_seconds=fmean(spent) if len(spent) == len(done) else None,
        accuracy=float(accuracy(total)) if known else None,
        iou=float(mean_iou(total)) if known else None,
        gap=fmean(gaps) if gaps else None,
        median_gap=median(gaps) if gaps else None,
    )


def differences(
    first: Iterable[Outcome], second: Iterable[Outcome]
) -> tuple[int, dict[str, dict[str, Interval]]]:
    """Compare two runs on the labelled images that both have done.

    Returns
    -------
    int
        How many images that are.
    dict
        For each metric ``"first"``, ``"second"`` and ``"difference"``, which is paired by image.

    Examples
    --------
    >>> from experiments.outcome import Outcome
    >>> good = [Outcome("lp", "a", 1.0, 0.1, confusion=np.array([[9, 1], [0, 10]]))]
    >>> poor = [Outcome("mf", "a", 1.0, 0.1, confusion=np.array([[5, 5], [0, 10]]))]
    >>> print(differences(good, poor)[1]["accuracy"]["difference"])
    0.2000 [0.2000, 0.2000]
    """
    one, two = (
        {o.image: o.confusion for o in run if o.confusion is not None} for run in (first, second)
    )
    images = sorted(one.keys() & two.keys())
    if not images:
        raise ValueError("no image with ground truth was done by both")
    a, b = (np.stack([run[image] for image in images]) for run in (one, two))
    return len(images), {
        metric: {
            "first": bootstrap(a, metric),
            "second": bootstrap(b, metric),
            "difference": bootstrap(a, metric, minus=b),
        }
        for metric in METRICS
    }


def outcomes_csv(outcomes: Iterable[Outcome]) -> str:
    """Render one line per method and image, full precision; empty is unknown."""
    names = ("image", "method", "energy", "seconds", "lower_bound", "gap")
    extra = ("cpu_seconds", "iterations", "ordered_calls", "converged", "best_constant", "constant")
    lines = []
    for outcome in sorted(outcomes, key=lambda o: (o.image, o.method)):
        known = outcome.confusion is not None and outcome.confusion.any()
        lines.append(
            [
                *(getattr(outcome, name) for name in names),
                float(accuracy(outcome.confusion)) if known else None,
                *(outcome.details.get(name) for name in extra),
            ]
        )
    return _csv([*names, "accuracy", *extra], lines)


def _csv(header: list[str], lines: Iterable[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
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
    files = comparison_files(folder, stem)
    texts = [*(comparison.render(style) for style in _SUFFIXES), outcomes_csv(outcomes)]
    for path, text in zip(files, texts, strict=False):
        write_text(path, text)
    write_json(files[-1], {"about": dict(about), **asdict(comparison)})
    return files


def comparison_files(folder: str | os.PathLike[str], stem: str) -> list[Path]:
    """Return the files that `write_comparison` writes: one per format, the images, and JSON."""
    return [Path(folder, stem + end) for end in (*_SUFFIXES.values(), "-images.csv", ".json")]
