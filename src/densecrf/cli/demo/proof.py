"""What the certificates of the scenes prove, in words; numbers are rounded to the safe side."""

import math
from collections.abc import Iterable, Sequence

from densecrf.cli.demo.scenes import Comparison

__all__ = ["at_least", "at_most", "gap_of", "mean_field_excess", "proven"]


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
