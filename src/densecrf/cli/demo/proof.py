"""The scenes solved, and what their certificates prove, in words.

Numbers are rounded to the safe side.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from densecrf.data import Scene
from densecrf.model.crf import DenseCRF
from densecrf.model.parameters import Parameters
from densecrf.model.scribbles import scribble_unary
from densecrf.solvers.result import Result

__all__ = ["Comparison", "at_least", "at_most", "compare", "gap_of", "mean_field_excess", "proven"]

#: Strokes leave much to the kernels, so they are short and strong.
KERNELS = Parameters(sigma=3, weight=5, sigma_xy=15, sigma_color=8, bilateral_weight=15)
CERTAINTY = 0.95  # of the strokes' colours


@dataclass(frozen=True)
class Comparison:
    """A scene's answers."""

    scene: Scene
    crf: DenseCRF
    results: tuple[Result, ...]

    def result(self, method: str) -> Result:
        """Return what one method found."""
        return next(result for result in self.results if result.method == method)


def compare(
    scene: Scene,
    methods: tuple[str, ...] = ("mf5", "mf", "lp"),
    on_method: Callable[[str], Any] = lambda _: None,
) -> Comparison:
    """Solve one scene by several methods, on one energy.

    Parameters
    ----------
    scene : Scene
        The photograph and its strokes.
    methods : tuple of str
        Names of `densecrf.METHODS`.
    on_method : callable
        Called with each method's name before it starts.
    """
    unary = scribble_unary(scene.image, scene.scribbles, len(scene.classes), certainty=CERTAINTY)
    crf = DenseCRF(unary, KERNELS.kernels(scene.image))
    results = []
    for method in methods:
        on_method(method)
        results.append(crf.solve(method))
    return Comparison(scene, crf, tuple(results))


def at_most(share: float) -> str:
    """Return per cent rounded up: a bound stays one.

    Examples
    --------
    >>> at_most(0.000721)
    '0.08 %'
    """
    return f"{math.ceil(1e4 * share) / 100:.2f} %"


def at_least(share: float) -> str:
    """Return per cent rounded down.

    Examples
    --------
    >>> at_least(0.0597)
    '5.9 %'
    """
    return f"{math.floor(1e3 * share) / 10:.1f} %"


def gap_of(done: Comparison) -> float:
    """Return how far above the best labelling the linear program's is at most."""
    lp = done.result("lp")
    bound = lp.energy if lp.lower_bound is None else lp.lower_bound
    return max(0.0, lp.energy - bound) / bound


def mean_field_excess(done: Comparison) -> float:
    """Return how far above the best labelling mean field's is at least."""
    # The best is no higher than what the linear program found, be it the same but for rounding.
    return max(0.0, done.result("mf").energy / done.result("lp").energy - 1)


def proven(comparisons: Sequence[Comparison]) -> list[str]:
    """Return in three lines what was just proven."""
    bounds = _listed(
        f"of the {done.crf.n_labels}^{done.crf.n} labellings of {done.scene.name} none has an "
        f"energy below {done.result('lp').lower_bound:,.1f}"
        for done in comparisons
    )
    gaps = _listed(at_most(gap_of(done)) for done in comparisons)
    excess = _listed(at_least(mean_field_excess(done)) for done in comparisons)
    return [
        f"Proven: {bounds}.",
        f"So lp's answers are at most {gaps} above the best there is: no method can gain more.",
        f"Mean field, run to its end, is at least {excess} above the best, without a bound.",
    ]


def _listed(texts: Iterable[str]) -> str:
    return " and ".join(texts)
