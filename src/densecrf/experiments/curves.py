"""Energy and bound against time: methods, and the studies of λ, of H and of the order.

The paper's Figures 2, 6 and 8. Every curve is a record, so that a study that was interrupted
goes on, and figures can be drawn again without a run.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

from densecrf.experiments.figures import COLORS, new_figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from densecrf.experiments.records import RecordStore
    from densecrf.experiments.runner import Plan
    from densecrf.io import Sample
    from densecrf.model import DenseCRF
    from densecrf.result import Result

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
    """How a variant got there on one image.

    Attributes
    ----------
    variant, method, image
        Their names.
    seconds, energy, lower_bound, ordered_calls
        One value an iteration; energies are those of the protocol's reported energy, bounds None
        where there are none.
    best_constant
        The energy of the best constant labelling.
    """

    variant: str
    method: str
    image: str
    seconds: list[float]
    energy: list[float]
    lower_bound: list[float | None]
    ordered_calls: list[int]
    best_constant: float

    def end(self) -> dict[str, Any]:
        """Return where it ended: its names and last values."""
        names = ("variant", "method", "image")
        lasts = ("seconds", "energy", "lower_bound", "ordered_calls")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: getattr(self, name)[-1] for name in lasts},
        }


def measure_curves(
    plan: Plan,
    study: str,
    variants: tuple[Variant, ...],
    store: RecordStore,
    progress: Callable[[int, int, str], object] | None = None,
) -> list[Curve]:
    """Run every variant on every image of the plan, unless its record is there.

    Parameters
    ----------
    plan
        Images, protocol, parameters, limits; its methods are not used.
    study
        The study's name, part of the records' place.
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
        loaded: Sample | None = None
        starts: dict[str, Result] = {}
        for variant in variants:
            key = ("curves", study, plan.protocol.name, plan.label, image, variant.name)
            settings = {
                **plan.settings(variant.method, image),
                "variant": dict(variant.options),
            }
            values = store.load(key, settings)
            if values is None:
                if progress is not None:
                    progress(len(curves), total, f"{image}: {variant.name}")
                loaded = loaded or plan.dataset.items[image].load()
                values = vars(_measure(plan, variant, loaded, starts))
                store.save(key, settings, values)
            curves.append(Curve(**values))
    return curves


class _Judge:
    """Scores each iteration in the reported energy, and knows how much time that took."""

    def __init__(self, model: DenseCRF) -> None:
        self.model = model
        self.energies: list[float] = []
        self.spent = [0.0]

    def __call__(self, outcome: Any) -> None:
        begun = time.perf_counter()
        self.energies.append(self.model.energy(outcome.labels))
        self.spent.append(self.spent[-1] + time.perf_counter() - begun)


def _measure(plan: Plan, variant: Variant, sample: Sample, starts: dict[str, Result]) -> Curve:
    """Run a variant; `starts` keeps the starting points that the image's variants share."""
    protocol, unary = plan.protocol, sample.scores.energies()
    own, first = protocol.minimised(variant.method), protocol.starts.get(variant.method)
    model = protocol.reported.model(unary, sample.image, plan.parameters)
    judge = None if protocol.certified(variant.method) else _Judge(model)
    start, before = None, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if first is not None:
            if first not in starts:
                origin = protocol.minimised(first)
                starts[first] = origin.model(unary, sample.image, plan.parameters).solve(
                    first, threads=plan.threads, **origin.options
                )
            start, before = starts[first].marginals, starts[first].seconds
        result = own.model(unary, sample.image, plan.parameters).solve(
            variant.method,
            init=start,
            threads=plan.threads,
            callback=judge,
            **{**plan.limits, **own.options, **variant.options},
        )
    trace = result.trace
    seconds, energy, bound = trace.seconds, trace.energy, trace.lower_bound
    calls = trace.ordered_calls
    if judge is not None:  # the starting point was not scored
        seconds = [s - spent for s, spent in zip(seconds[1:], judge.spent, strict=False)]
        energy, bound, calls = judge.energies, [None] * len(seconds), calls[1:]
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


def draw_curves(curves: list[Curve], *, zoom: bool = True) -> Figure:
    """Draw a row an image: all energies and bounds, and beside them the lowest ones closer up.

    Parameters
    ----------
    curves
        Of one study.
    zoom
        Whether to draw the second picture.
    """
    images = list(dict.fromkeys(curve.image for curve in curves))
    columns = 2 if zoom else 1
    figure = new_figure(4.3 * columns, 3.4 * len(images))
    axes = figure.subplots(len(images), columns, squeeze=False)
    for row, image in zip(axes, images, strict=True):
        own = [curve for curve in curves if curve.image == image]
        colors = _colors(own)
        for axis in row:
            for curve in own:
                _draw(axis, curve, colors[curve.variant])
            axis.set_xlabel("seconds")
            axis.grid(alpha=0.3)
        row[0].set_ylabel("energy")
        row[0].set_title(image, fontsize="medium")
        _scale(row[0], own)
        row[0].legend(fontsize="small")
        if zoom:
            _zoom(row[1], own)
    return figure


def _colors(curves: list[Curve]) -> dict[str, Any]:
    """Return a colour a variant: the methods' own where no two variants share a method."""
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
    """Make wide ranges logarithmic, and leave out what says nothing: bounds below zero."""
    if _spread([second for curve in curves for second in curve.seconds]) > 20:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
    energies = [energy for curve in curves for energy in curve.energy]
    if _spread(energies) > 10:
        axis.set_yscale("log")
        return
    axis.yaxis.set_major_formatter("{x:,.7g}")
    if min(energies) > 0:
        axis.set_ylim(bottom=max(0.0, axis.get_ylim()[0]))


def _spread(values: list[float]) -> float:
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
