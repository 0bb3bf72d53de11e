"""What a run returns: where the labels are, and how good they are."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.result import relative_gap

__all__ = ["LargeResult"]


@dataclass(eq=False, repr=False)
class LargeResult:
    """The outcome of `densecrf.large.refine`.

    Attributes
    ----------
    labels : array
        The labelling, read from `out` where it is sliced; without `out`, an array in memory.
    energy : float
        Its energy, in double precision.
    lower_bound : float or None
        No labelling of the whole image has an energy below this; None for mean field.
    method : str
        The method.
    converged : bool
        Whether the asked gap is proven.
    message : str
        Why it ended.
    seconds : float
        Time of this call; what an interrupted one did before is not counted.
    iterations : int
        Iterations of each tile.
    best_constant : tuple of (int, float)
        The best constant labelling's label and energy.
    proven_share : float
        Share of the pixels whose label is proven to be that of every optimal labelling.
    gap_map : ndarray
        Each tile's share of the gap, on the grid of tiles; they add up to `gap`.
    tiles : list of dict
        For each tile its box, energy and bound.
    trace : list of dict
        For each round over all tiles: iterations, and estimates of energy and bound.
    """

    labels: Any
    energy: float
    lower_bound: float | None
    method: str
    converged: bool
    message: str
    seconds: float
    iterations: int
    best_constant: tuple[int, float]
    proven_share: float = 0.0
    gap_map: npt.NDArray[np.float64] | None = None
    tiles: list[dict[str, Any]] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)

    @property
    def gap(self) -> float | None:
        """(energy - lower_bound) / max(1, abs(energy)): how far from optimal, at most."""
        return relative_gap(self.energy, self.lower_bound)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON."""
        names = ["method", "energy", "lower_bound", "gap", "proven_share", "converged", "message"]
        names += ["seconds", "iterations", "tiles", "trace"]
        out = {name: getattr(self, name) for name in names}
        label, energy = self.best_constant
        return {**out, "best_constant": {"label": label, "energy": energy}}

    def __repr__(self) -> str:
        """Return one line."""
        grid = " × ".join(map(str, self.labels.shape))
        gap = "None" if self.gap is None else f"{self.gap:.3g}"
        return (
            f"<LargeResult of {self.method}: {grid} pixels, {len(self.tiles)} tiles, "
            f"energy={self.energy:.10g}, gap={gap}>"
        )
