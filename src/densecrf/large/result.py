"""The result of a tiled run."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.solvers.result import Result, relative_gap

SHARED = (  # attributes of `Result`
    *("method", "energy", "lower_bound", "converged", "message"),
    *("seconds", "iterations", "best_constant"),
)
PIECE = ("confidence", "confident", "margin", "margin_estimate", "marginals", "proven")

__all__ = ["LargeResult", "label_dtype"]


def label_dtype(n_labels: int) -> np.dtype[Any]:
    """Return the smallest dtype that holds all labels and the value of unlabelled pixels."""
    return np.dtype(np.uint8 if n_labels < 255 else np.uint16)


@dataclass(eq=False, repr=False)
class LargeResult:
    """The outcome of `densecrf.large.refine`.

    Attributes
    ----------
    labels : array
        The labelling, read from `out` when it is sliced; without `out`, an array in memory.
    energy : float
        Its energy, in double precision.
    lower_bound : float or None
        No labelling of the whole image has an energy below this; None for mean field.
    method : str
        The method.
    converged : bool
        Whether the requested gap is proven.
    message : str
        Why it ended.
    seconds : float
        Time of this call, without earlier interrupted ones.
    iterations : int
        Iterations of each tile.
    best_constant : tuple of (int, float)
        The best constant labelling's label and energy.
    proven_share : float
        Share of the pixels whose label is proven to be the same in every optimal labelling.
    gap_map : ndarray
        Each tile's share of the gap, on the grid of tiles; they add up to `gap`.
    tiles : list of dict
        For each tile its box, energy and bound.
    trace : list of dict
        For each round over all tiles: iterations, and estimates of energy and bound.
    """

    energy: float
    lower_bound: float | None
    method: str
    best_constant: tuple[int, float]
    labels: Any = None
    converged: bool = False
    message: str = ""
    seconds: float = 0.0
    iterations: int = 0
    proven_share: float = 0.0
    gap_map: npt.NDArray[np.float64] | None = None
    tiles: list[dict[str, Any]] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def of(result: Result) -> "LargeResult":
        """Return the result of an image that was not cut."""
        labels = result.labels.astype(label_dtype(len(result.marginals)))
        sums = {"energy": result.energy, "bound": result.lower_bound}
        trace = zip(result.trace.energy, result.trace.lower_bound, strict=True)
        return LargeResult(
            **{name: getattr(result, name) for name in SHARED},
            labels=labels,
            proven_share=float(result.proven.mean()),
            gap_map=None if result.gap is None else np.full((1,) * labels.ndim, result.gap),
            tiles=[{"box": [[0, side] for side in labels.shape], **sums}],
            trace=[
                {"iterations": i, "energy": energy, "bound": bound}
                for i, (energy, bound) in enumerate(trace)
            ],
        )

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError, with a remedy for attributes of `Result`."""
        remedy = "" if name not in PIECE else ": not available with tiles; use densecrf.refine"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{remedy}")

    @property
    def gap(self) -> float | None:
        """(energy - lower_bound) / max(1, abs(energy)), a bound on the relative excess."""
        return relative_gap(self.energy, self.lower_bound)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON."""
        names = (*SHARED, "gap", "proven_share", "tiles", "trace")
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
