"""How sure is each pixel? Measures of confidence on seven kinds of images.

    python -m experiments.calibration --data FOLDER [--images 8] [--jobs 1] [--out RECORD.md]
                                      [--figure FILE.png]

For each set under FOLDER (as `experiments.quality` reads them) some `val` images are refined by the
default, and their pixels are ranked by each measure: the network's probability of the label, LP and
mean-field marginals, proven margins, the cost of the best single change, `Result.confidence`. The
record has the areas under the curves of accuracy at coverage and the expected calibration errors;
the figure has the curves and the reliability diagram of `Result.confidence`.
"""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.problem.problem import problem_of
from densecrf.refinement import build
from experiments.figures import new_figure, save_figure
from experiments.quality import SETS, Item, items_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["accuracy_at_coverage", "area", "calibration_error", "main", "measures"]

GAP = 1e-3  # the default's
STEP = 5  # one pixel of so many counts
BINS = 15
KEPT = 0.95
PROBABILITIES = ("network", "LP marginals", "mean field", "mean field at the optimum", "confidence")
Measures = dict[str, np.ndarray[Any, Any]]


def measures(item: Item, gap: float = GAP) -> tuple[Measures, np.ndarray[Any, Any]]:
    """Return the measures of some pixels of an image, and whether their labels are right."""
    crf = build(item.image(), item.scores(), kind="logits", axis=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = crf.solve("lp", gap=gap, threads=1)
        field = crf.solve("mf", init=result, max_iterations=5, threads=1)
    problem = problem_of(crf, 1)
    x = result.labels.reshape(-1)
    at = (x, np.arange(crf.n))
    messages = problem.messages(problem.indicator(x))
    found = {
        "network": problem.unary_marginals()[at],
        "LP marginals": result.marginals.reshape(crf.n_labels, -1)[at],
        "mean field": field.marginals.reshape(crf.n_labels, -1)[at],
        "mean field at the optimum": problem.steps.softmax(crf.unary + messages)[at],
        "margin": np.zeros(crf.n) if result.margin is None else result.margin.reshape(-1),
        "proven": result.proven.reshape(-1).astype(float),
        "margin, estimated": result.margin_estimate.reshape(-1),
        "confidence": result.confidence.reshape(-1),
    }
    truth = item.truth().reshape(-1)
    some = np.flatnonzero(truth != 255)[::STEP]
    return {name: values[some] for name, values in found.items()}, (x == truth)[some]


def accuracy_at_coverage(
    values: np.ndarray[Any, Any], right: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the accuracy of the 1, 2, ... pixels of largest values.

    Pixels of the same value come in any order: each has the accuracy of all of them.

    Examples
    --------
    >>> accuracy_at_coverage(np.array([3, 1, 2, 1]), np.array([1, 0, 1, 1])).round(2).tolist()
    [1.0, 1.0, 0.83, 0.75]
    """
    _, group, sizes = np.unique(-values, return_inverse=True, return_counts=True)
    mean = np.bincount(group.reshape(-1), right) / sizes
    count = np.arange(1, len(values) + 1)
    return np.asarray(np.cumsum(mean.repeat(sizes)) / count)


def area(values: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Return the area under the curve of accuracy at coverage, from 0 to 1."""
    return float(accuracy_at_coverage(values, right).mean())


def reliability(values: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return, for each bin of confidence with pixels: their mean, accuracy and share."""
    bins = np.clip((values * BINS).astype(int), 0, BINS - 1)
    rows = [
        (values[bins == one].mean(), right[bins == one].mean(), (bins == one).mean())
        for one in range(BINS)
        if (bins == one).any()
    ]
    return np.array(rows)


def calibration_error(values: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Return the expected calibration error.

    Examples
    --------
    >>> round(calibration_error(np.array([0.9, 0.9]), np.array([1, 0])), 2)
    0.4
    """
    mean, accuracy, share = reliability(values, right).T
    return float((share * abs(mean - accuracy)).sum())


def _joined(found: list[tuple[Measures, Any]], name: str) -> tuple[Any, Any]:
    values = np.concatenate([each[name] for each, _ in found]).astype(np.float64)
    return values, np.concatenate([right for _, right in found])


def record(found: dict[str, list[tuple[Measures, Any]]]) -> str:
    """Return the tables."""
    names = list(next(iter(found.values()))[0][0])
    head = "| | " + " | ".join(found) + " | mean |\n|---" + "|---" * (len(found) + 1) + "|"

    def rows(value: Any, chosen: Any = names) -> str:
        lines = [head]
        for name in chosen:
            numbers = [value(each, name) for each in found.values()]
            cells = [f"{100 * number:.2f}" for number in (*numbers, np.mean(numbers))]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def within(each: Any, name: str) -> float:
        return float(np.mean([area(one[name].astype(np.float64), right) for one, right in each]))

    def kept(each: Any, name: str) -> str:
        values, right = _joined(each, name)
        sure = values >= KEPT
        accuracy = f"{100 * right[sure].mean():.1f}" if sure.any() else "-"
        return f"{100 * sure.mean():.1f} / {accuracy}"

    counts = ", ".join(f"{name} {len(each)}" for name, each in found.items())
    accuracy = ", ".join(
        f"{name} {100 * _joined(each, names[0])[1].mean():.2f}" for name, each in found.items()
    )
    sure = [head.replace(" mean |", "", 1).replace("|---", "", 1)]
    sure += [
        f"| {name} | " + " | ".join(kept(each, name) for each in found.values()) + " |"
        for name in PROBABILITIES
    ]
    about = f"Images of `val`: {counts}; one pixel of {STEP}. Labels of `lp` by the default model "
    about += f"to a gap of {GAP:g}; accuracy in per cent: {accuracy}."
    return "\n\n".join(
        [
            about,
            "## Area under accuracy at coverage, per cent, all pixels of a set together",
            rows(lambda each, name: area(*_joined(each, name))),
            "## The same within each image, mean over images",
            rows(within),
            f"## Expected calibration error, per cent, {BINS} bins",
            rows(lambda each, name: calibration_error(*_joined(each, name)), PROBABILITIES),
            f"## Pixels of {KEPT} and more: their share / their accuracy, per cent",
            "\n".join(sure),
        ]
    )


def draw(found: dict[str, list[tuple[Measures, Any]]]) -> Figure:
    """Draw the curves, mean over the sets, and the reliability diagram of `Result.confidence`."""
    figure = new_figure(8.0, 3.6)
    curves, diagram = figure.subplots(1, 2)
    share = np.linspace(0.02, 1, 99)
    for name in next(iter(found.values()))[0][0]:
        all_of = []
        for each in found.values():
            curve = accuracy_at_coverage(*_joined(each, name))
            all_of.append(np.interp(share, np.arange(1, len(curve) + 1) / len(curve), curve))
        width = 2.2 if name == "confidence" else 1.0
        color = "black" if name == "confidence" else None
        mean = 100 * np.mean(all_of, 0)
        curves.plot(100 * share, mean, label=name, linewidth=width, color=color)
    curves.set_xlabel("pixels kept, per cent")
    curves.set_ylabel("of these right, per cent (mean of 7 sets)")
    curves.set_ylim(90, 100)
    curves.legend(fontsize="x-small", frameon=False, loc="lower left", ncols=2)
    diagram.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    for name, each in found.items():
        mean, accuracy, part = reliability(*_joined(each, "confidence")).T
        enough = part > 1e-3
        diagram.plot(mean[enough], accuracy[enough], marker=".", linewidth=1.0, label=name)
    diagram.set_xlabel("result.confidence")
    diagram.set_ylabel("labels that are right")
    diagram.legend(fontsize="x-small", frameon=False, loc="upper left")
    return figure


def main() -> None:
    """Run, print, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--images", type=int, default=8, help="of each set, spread over its val")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the tables, as Markdown")
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args()
    found = {}
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for name in chosen.sets:
            items = items_of(chosen.data / name, "val")
            items = items[:: max(1, len(items) // chosen.images)][: chosen.images]
            found[name] = list(pool.map(measures, items))
            print(name, flush=True)
    text = record(found)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(f"# How sure is each pixel?\n\n{text}\n", "utf-8")
    if chosen.figure is not None:
        save_figure(chosen.figure, draw(found), dpi=120)


if __name__ == "__main__":
    main()
