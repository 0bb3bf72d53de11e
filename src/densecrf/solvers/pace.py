"""Whether a method still makes progress."""

from densecrf.rounding import Incumbent

__all__ = ["Pace"]

LEAST, WINDOW, SHARE = 20, 10, 0.5


class Pace:
    """Tells when the gap between the best energy and a method's bound has stopped to halve.

    Parameters
    ----------
    incumbent : Incumbent
        The best labelling.
    """

    def __init__(self, incumbent: Incumbent) -> None:
        self._incumbent = incumbent
        self._best = -float("inf")
        self._gaps: list[float] = []

    def slow(self, bound: float) -> bool:
        """Take an iteration's bound in; return whether the last ten did not halve the gap."""
        self._best = max(self._best, bound)
        self._gaps.append(self._incumbent.energy - self._best)
        if len(self._gaps) <= LEAST:
            return False
        return self._gaps[-1] > SHARE * self._gaps[-1 - WINDOW]
