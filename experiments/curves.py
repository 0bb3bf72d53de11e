"""Energy and bound against time: methods, and the studies of λ, of H and of the order.

The paper's Figures 2, 6 and 8. Every curve is a record, so that a study that was interrupted
goes on, and figures can be drawn again without another run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

from experiments.figures import COLORS, new_figure
from experiments.runner import Plan, Progress, Solved, solve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from densecrf.io import Sample
    from densecrf.model.crf import DenseCRF
    from densecrf.records import RecordStore

__all__ = ["STUDIES", "Curve", "Variant", "draw_curves", "measure_curves", "methods_study"]


@dataclass(frozen=True)
class Variant:
    """One curve of a study: a name for the legend, a method and its options."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)


#: Studies of the paper's method; that of methods is `methods_study`.
STUDIES: dict[str, tuple[Variant, ...]] = {
    "lambda": tuple(
        Variant(f"λ = {lam:g}", "prox-lp", {"lam": lam}) for lam in (1.0, 0.1, 0.01, 0.001)
    ),
    "levels": tuple(Variant(f"H = {h}", "prox-lp", {"levels": h}) for h in (3, 5, 10, 20, 50)),
    "order": tuple(
        Variant(order, "prox-lp", {"order": order}) for order in ("hard", "soft", "adaptive")
    ),
}


def methods_study(methods: tuple[str, ...]) -> tuple[Variant, ...]:
    """Return the study that compares methods as they are."""
    return tuple(Variant(method, method) for method in methods)


@dataclass(frozen=True)
class Curve:
    """Energy and bound of a variant on one image, one value per iteration."""

    variant: str
    method: str
    image: str
    seconds: list[float]
    energy: list[float]  # the one that the protocol reports
    lower_bound: list[float | None]
    ordered_calls: list[int]
    best_constant: float  # energy of the best constant labelling

    def end(self) -> dict[str, Any]:
        """Return where it ended: its names and last values."""
        lasts = ("seconds", "energy", "lower_bound", "ordered_calls")
        ends = {name: getattr(self, name)[-1] for name in lasts}
        return {"variant": self.variant, "method": self.method, "image": self.image, **ends}


def measure_curves(
    plan: Plan,
    study: str,
    variants: tuple[Variant, ...],
    store: RecordStore,
    progress: Progress | None = None,
) -> list[Curve]:
    """Run every variant on every image of the plan, unless its record is there.

    Parameters
    ----------
    plan
        Images, protocol, parameters, limits; its methods are not used.
    study
        The study's name, part of the records' paths.
    variants
        The curves.
    store
        Where the records are.
    progress
        Called before each run with (done, total, what).
    """
    curves: list[Curve] = []
    total = len(plan.images) * len(variants)
    for image in plan.images:
        sample: Sample | None = None
        starts: dict[str, Solved] = {}
        for variant in variants:
            varied = replace(plan, options={variant.method: variant.options})
            key = ("curves", study, plan.protocol.name, plan.label, image, variant.name)
            settings = varied.settings(variant.method, image)
            values = store.load(key, settings)
            if values is None:
                if progress is not None:
                    progress(len(curves), total, f"{image}: {variant.name}")
                sample = sample or plan.dataset.items[image].load()
                values = vars(_measure(varied, variant, sample, starts))
                store.save(key, settings, values)
            curves.append(Curve(**values))
    return curves


class _ReportedEnergy:
    """Evaluates each iteration in the reported energy, and keeps the time that this takes."""

    def __init__(self, model: DenseCRF) -> None:
        self.model = model
        self.energies: list[float] = []
        self.spent = [0.0]

    def __call__(self, outcome: Any) -> None:
        begun = time.perf_counter()
        self.energies.append(self.model.energy(outcome.labels))
        self.spent.append(self.spent[-1] + time.perf_counter() - begun)


def _measure(plan: Plan, variant: Variant, sample: Sample, starts: dict[str, Solved]) -> Curve:
    """Run a variant; `starts` keeps the starting points that the image's variants share."""
    model = plan.protocol.reported.model(sample.scores.energies(), sample.image, plan.parameters)
    reported = None if plan.protocol.certified(variant.method) else _ReportedEnergy(model)
    solved = solve(plan, variant.method, sample, starts, reported)
    trace = solved.result.trace
    seconds, energy, bound = trace.seconds, trace.energy, trace.lower_bound
    calls = trace.ordered_calls
    if reported is not None:  # the starting point was not evaluated
        seconds = [s - spent for s, spent in zip(seconds[1:], reported.spent, strict=False)]
        energy, bound, calls = reported.energies, [None] * len(seconds), calls[1:]
    before = solved.seconds - solved.result.seconds  # of the starting point
    return Curve(
        variant.name,
        variant.method,
        sample.name,
        [before + s for s in seconds],
        list(energy),
        list(bound),
        list(calls),
        float(model.constant_energies().min()),
    )


def draw_curves(curves: list[Curve]) -> Figure:
    """Draw one row per image: all energies and bounds, and next to them the lowest, enlarged."""
    images = list(dict.fromkeys(curve.image for curve in curves))
    figure = new_figure(8.6, 3.4 * len(images))
    axes = figure.subplots(len(images), 2, squeeze=False)
    for (whole, detail), image in zip(axes, images, strict=True):
        own = [curve for curve in curves if curve.image == image]
        colors = _colors(own)
        for axis in (whole, detail):
            for curve in own:
                _draw(axis, curve, colors[curve.variant])
            axis.set_xlabel("seconds")
            axis.grid(alpha=0.3)
        whole.set_ylabel("energy")
        whole.set_title(image, fontsize="medium")
        _scale(whole, own)
        whole.legend(fontsize="small")
        _zoom(detail, own)
    return figure


def _colors(curves: list[Curve]) -> dict[str, Any]:
    """Return one colour per variant: the methods' own where no two variants share a method."""
    methods = [curve.method for curve in curves]
    if len(set(methods)) == len(methods):
        return {curve.variant: COLORS[curve.method] for curve in curves}
    tones = cycle([COLORS[name] for name in ("mf", "lp", "prox-lp-acc", "sg-lp", "mf5", "dc-neg")])
    return {curve.variant: next(tones) for curve in curves}


def _draw(axis: Axes, curve: Curve, color: Any) -> None:
    style = {"color": color, "drawstyle": "steps-post", "lw": 1.5}
    axis.plot(curve.seconds, curve.energy, label=curve.variant, **style)
    axis.plot(curve.seconds[-1], curve.energy[-1], "o", color=color, ms=3)
    known = [(s, b) for s, b in zip(curve.seconds, curve.lower_bound, strict=True) if b is not None]
    if known:
        axis.plot(*zip(*known, strict=True), ls="--", **{**style, "lw": 1.0})


def _scale(axis: Axes, curves: list[Curve]) -> None:
    """Make wide ranges logarithmic, and leave out bounds below zero."""
    if _ratio([second for curve in curves for second in curve.seconds]) > 20:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
    energies = [energy for curve in curves for energy in curve.energy]
    if _ratio(energies) > 10:
        axis.set_yscale("log")
        return
    axis.yaxis.set_major_formatter("{x:,.7g}")
    if min(energies) > 0:
        axis.set_ylim(bottom=max(0.0, axis.get_ylim()[0]))


def _ratio(values: list[float]) -> float:
    return max(values) / min(values) if min(values) > 0 else 1.0


def _zoom(axis: Axes, curves: list[Curve]) -> None:
    """Show from the best bound, if it is near, to a little above the final energies."""
    finals = [curve.energy[-1] for curve in curves]
    low = min(finals)
    best = max((b for c in curves for b in c.lower_bound if b is not None), default=low)
    near = [energy for energy in finals if energy < low + 0.1 * abs(low)]
    span = max(max(near) - low, 0.004 * abs(low))
    floor = best if low - best < span else low
    axis.set_ylim(floor - 0.15 * span, max(near) + 0.6 * span)
    axis.set_title("close up (dashed: lower bounds)", fontsize="medium")
    axis.yaxis.set_major_formatter("{x:,.7g}")
