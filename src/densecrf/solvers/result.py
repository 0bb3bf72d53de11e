"""The result of a solver: the labelling, its certificate, its trace."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.model.label_prior import without_label_offsets
from densecrf.model.resolution import excess
from densecrf.solvers.changes import Changes, compare
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    check_fraction,
    check_integer,
    mention,
)

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from densecrf.model.crf import DenseCRF
    from densecrf.problem.certificate import HostDual
    from densecrf.solvers.verification import Verification

__all__ = ["Result", "Trace", "check_unsure", "relative_gap", "share_proven"]


OPTIMAL_GAP = 1e-6
ZERO_ENERGY = 1e-6  # below which an energy is not told from zero, whose bound is rounded, too


def relative_gap(energy: float, bound: float | None) -> float | None:
    """Return (energy - bound) / max(1, |energy|): how far from optimal, at most.

    Examples
    --------
    >>> relative_gap(200.0, 199.0)
    0.005
    """
    if bound is None:
        return None
    return (energy - bound) / max(1.0, abs(energy))


def share_proven(proven: npt.NDArray[np.bool_]) -> str:
    """Return the share of proven pixels in per cent, rounded down.

    Examples
    --------
    >>> share_proven(np.arange(10_000) > 0)
    '99.9 %'
    """
    return f"{1000 * int(proven.sum()) // proven.size / 10:.1f} %"


def check_unsure(value: Any, n_labels: int) -> int:
    """Return the value of unsure pixels, or refuse one that is a label or no pixel can have."""
    number = check_integer("unsure", value, at_least=-1, at_most=65535)
    if 0 <= number < n_labels:
        remedy = f"is one of the {n_labels} labels; use {mention('unsure', 65535)}"
        raise ArgumentError("unsure", value, remedy)
    return number


@dataclass
class Trace:
    """One row for each iteration; row 0 is the starting point.

    Attributes
    ----------
    seconds : list of float
        Time since the start, initialisation included.
    plain_calls, ordered_calls : list of int
        How often all labels had been filtered.
    energy : list of float
        Energy of the best labelling so far; the last is the result's, in double precision.
    current_energy : list of float
        Energy of this iteration's labelling, or of the last one that was scored: ``dc-neg``, whose
        objective never rises, scores iterations 1, 2, 4, 8 ... and the last.
    relaxed : list of float or None
        The relaxation's objective, where the method computes it.
    lower_bound : list of float or None
        The best bound so far, where the method has one: estimates in single precision but for the
        last, which is the result's.
    """

    seconds: list[float] = field(default_factory=list)
    plain_calls: list[int] = field(default_factory=list)
    ordered_calls: list[int] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)
    current_energy: list[float] = field(default_factory=list)
    relaxed: list[float | None] = field(default_factory=list)
    lower_bound: list[float | None] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.seconds)

    def to_dict(self) -> dict[str, list[float | None]]:
        """Return the columns."""
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}


@dataclass(eq=False, repr=False)
class Result:
    r"""The outcome of `DenseCRF.solve`.

    Attributes
    ----------
    labels : ndarray of int, (*spatial)
        The best labelling found.
    marginals : ndarray, (labels, *spatial)
        The relaxed solution that it was rounded from.
    energy : float
        Energy of `labels`; infinite where a limit ended the run before the filters were built.
    lower_bound : float or None
        No labelling has an energy below this. None if the method has no certificate.
    method : str
        The method's name.
    converged : bool
        Whether the method ended within the requested gap, not by a limit.
    message : str
        Why it ended.
    seconds : float
        Total time, with the construction of filters and the initialisation.
    iterations : int
        Iterations made.
    best_constant : tuple of (int, float)
        The best constant labelling's label and energy.
    trace : Trace
        One row per iteration; for ``mf5`` only the last, unless there was a callback, since
        evaluating an iteration costs as much as the iteration.
    possible : ndarray of int, (*spatial), or None
        The number of labels at each pixel that are not excluded from optimal labellings. None if
        the method has no certificate.
    margin : ndarray, (*spatial), or None
        A proven lower bound on the extra energy, over that of `labels`, of every labelling with
        another label at this pixel. Negative where nothing is proven. None if the method has no
        certificate.
    dual : Dual or None
        The dual point that proves the bound, with ``keep_dual=True``.
    declared : dict or None
        For a loaded result with a dual point: the declaration of its energy, without arrays.
    info : dict
        The method's own report (for example the labels and pixels that it kept).
    """

    labels: npt.NDArray[np.int64]
    marginals: npt.NDArray[np.float32]
    energy: float
    lower_bound: float | None
    method: str
    converged: bool
    message: str
    seconds: float
    iterations: int
    best_constant: tuple[int, float]
    trace: Trace
    possible: npt.NDArray[np.int32] | None = None
    margin: npt.NDArray[np.float32] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    crf: "DenseCRF | None" = field(default=None, repr=False)
    dual: "HostDual | None" = field(default=None, repr=False)
    declared: dict[str, Any] | None = field(default=None, repr=False)

    @cached_property
    def changes(self) -> Changes:
        """How the labelling differs from the argmin of the unaries."""
        crf = self.crf
        if crf is None:
            raise ArgumentError("result", ..., "has no model to compare with; solve it again")
        offsets = crf.label_offsets
        given = crf.unary if offsets is None else without_label_offsets(crf, offsets)
        return compare(given, self.labels, excess(crf))

    @cached_property
    def _conditionals(self) -> tuple[FloatArray, FloatArray]:
        from densecrf.solvers.confidence import conditionals

        if self.crf is None:
            remedy = "has no model (loaded, or from a cluster); ask for it before saving the result"
            raise ArgumentError("result", ..., remedy)
        return conditionals(self.crf, self.labels)

    @property
    def margin_estimate(self) -> npt.NDArray[np.float32]:
        """The extra energy, (*spatial), of the best change of each pixel alone.

        An upper bound of `margin`, for any method. Needs the model and one filter call.
        """
        return self._conditionals[0]

    @property
    def confidence(self) -> npt.NDArray[np.float32]:
        """How sure each pixel's label is, (*spatial), in (0, 1).

        The label's probability by the pixel's share of the energy, given all other labels. Needs
        the model and one filter call; no proof. "How sure is each pixel?" in the documentation
        shows how often labels of each confidence are right.

        Examples
        --------
        >>> import densecrf
        >>> crf = densecrf.DenseCRF([[0.0, 0.0], [3.0, 0.1]])
        >>> crf.solve().confidence.round(2).tolist() == [np.float32(0.95), np.float32(0.52)]
        True
        """
        return self._conditionals[1]

    def confident(self, threshold: float = 0.95, *, unsure: int = 255) -> npt.NDArray[np.int64]:
        """Return the labels, and `unsure` where the `confidence` is below a threshold.

        Parameters
        ----------
        threshold : float
            Minimum confidence of a label that is kept, between 0 and 1.
        unsure : int
            The value of the other pixels, not a label; losses of networks usually ignore 255.

        Examples
        --------
        >>> import densecrf
        >>> densecrf.DenseCRF([[0.0, 0.0], [3.0, 0.1]]).solve().confident(0.9)
        array([  0, 255])
        """
        least = check_fraction("threshold", threshold)
        value = check_unsure(unsure, len(self.marginals))
        return np.where(self.confidence < least, value, self.labels)

    @property
    def gap(self) -> float | None:
        """(energy - lower_bound) / max(1, abs(energy)), or None without a certificate."""
        return relative_gap(self.energy, self.lower_bound)

    @property
    def proven(self) -> npt.NDArray[np.bool_]:
        """The pixels, (*spatial), whose label is the same in every optimal labelling, proven.

        Their `margin` is positive.
        """
        if self.margin is not None:
            return np.asarray(self.margin > 0)
        if self.possible is None:
            return np.zeros(self.labels.shape, bool)
        return np.asarray(self.possible == 1)

    @property
    def undecided(self) -> npt.NDArray[np.bool_] | None:
        """The pixels that are not `proven`; None where most are not, for a wide gap."""
        proven = self.proven
        return ~proven if proven.mean() > 0.5 else None

    @property
    def optimal(self) -> bool:
        """Whether `labels` are proven to be optimal.

        Either all pixels are `proven`, or no labelling is better by more than 1e-6 of the energy,
        about the effect of rounding the unaries to float32. Unlike `gap`, this is relative to the
        energy even if it is small (down to 1e-6).
        """
        bound = self.lower_bound
        slack = OPTIMAL_GAP * max(abs(self.energy), ZERO_ENERGY)
        within = bound is not None and self.energy - bound <= slack
        return within or bool(self.proven.all())

    def to_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Return plain numbers, ready for JSON; with the labels and marginals if asked.

        JSON has no infinity: an energy that is not known is None.
        """
        out: dict[str, Any] = {
            "method": self.method,
            "energy": _plain(self.energy),
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "optimal": self.optimal,
            "proven_share": float(self.proven.mean()),
            "converged": self.converged,
            "message": self.message,
            "seconds": self.seconds,
            "iterations": self.iterations,
            "best_constant": {
                "label": self.best_constant[0],
                "energy": _plain(self.best_constant[1]),
            },
            "info": _plain(self.info),
            "trace": _plain(self.trace.to_dict()),
        }
        if arrays:
            out["labels"] = self.labels.tolist()
            out["marginals"] = self.marginals.tolist()
        return out

    def to_json(self, *, arrays: bool = False) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(arrays=arrays), indent=1)

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write everything but the model to one ``.npz`` file, atomically.

        Arrays are stored as such, the rest as JSON; nothing is pickled. With ``keep_dual=True`` the
        file is a certificate: ``Result.load(path).verify(crf)`` checks it against the model.
        """
        from densecrf.io.results import write_result

        write_result(path, self)

    @staticmethod
    def load(path: "str | os.PathLike[str]") -> "Result":
        """Read what `save` wrote; other, damaged and newer files raise ValueError.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import densecrf
        >>> result = densecrf.DenseCRF([[0.0, 1.0], [1.0, 0.0]]).solve()
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.npz"
        >>> result.save(path)
        >>> Result.load(path).labels
        array([0, 1])
        """
        from densecrf.io.results import read_result

        return read_result(path)

    def verify(self, crf: "DenseCRF | None" = None) -> "Verification":
        """Recompute energy, lower bound and proofs of pixels by another path, in NumPy and float64.

        Needs the model and the dual point: a result of ``solve(..., keep_dual=True)`` by a method
        that has a bound. See `densecrf.solvers.verification`.

        Parameters
        ----------
        crf : DenseCRF, optional
            The model; the result's own by default. A loaded result has none: give the model made
            again from the same data. One with other kernels or settings is refused.

        Examples
        --------
        >>> import densecrf
        >>> crf = densecrf.DenseCRF([[0.0, 1.0], [1.0, 0.0]], [densecrf.Spatial(1.0, 0.3)])
        >>> result = crf.solve("lp", keep_dual=True)
        >>> bool(abs(result.verify().energy - result.energy) < 1e-6)
        True
        """
        from densecrf.solvers.verification import declared, verify

        model = self.crf if crf is None else crf
        if self.dual is None:
            remedy = (
                "this result has no dual point; solve with keep_dual=True and a method that has "
            )
            raise ArgumentError("dual", ..., remedy + "a bound")
        if model is None:
            raise ArgumentError("crf", ..., "a loaded result has no model; give result.verify(crf)")
        if self.declared is not None:
            own = declared(model)
            for name, value in self.declared.items():
                if own.get(name) != value:
                    raise ArgumentError(
                        "crf", ..., f"its {name} is {own.get(name)}, that of the result {value}"
                    )
        return verify(model, self.labels, self.dual, device="device" in self.info)

    def plot(
        self,
        image: npt.ArrayLike | None = None,
        path: "str | os.PathLike[str] | None" = None,
        *,
        ax: "Axes | None" = None,
    ) -> "Figure | Axes":
        """Draw the labels over the image, and energy and bound against time.

        A notebook shows the returned figure once.

        Parameters
        ----------
        image : array_like, optional
            The image; by default that of the model's first `Bilateral` kernel.
        path : path-like, optional
            Where to save the figure.
        ax : matplotlib.axes.Axes, optional
            Draw only the labels, into these axes; they are returned.
        """
        from densecrf.plotting import plot_labels, plot_result

        if ax is not None:
            return plot_labels(self, ax, image=image)
        return plot_result(self, image=image, path=path)

    def _repr_html_(self) -> str:
        from densecrf.display import result_html

        return result_html(self)

    def __repr__(self) -> str:
        """Return one line."""
        grid = " × ".join(map(str, self.labels.shape))
        gap = "None" if self.gap is None else f"{self.gap:.3g}"
        return f"<Result of {self.method}: {grid} pixels, energy={self.energy:.10g}, gap={gap}>"

    def __str__(self) -> str:
        """Return a summary for people."""
        grid = " × ".join(map(str, self.labels.shape))
        used = len(np.unique(self.labels))
        energy = f"{self.energy:,.3f}" if isfinite(self.energy) else "not evaluated"
        lines = [
            f"{self.method}: {grid} pixels, {used} of {self.marginals.shape[0]} labels used",
            f"  energy       {energy}",
        ]
        if self.lower_bound is None or self.gap is None:
            lines.append("  certificate  none (this method has no bound; try densecrf.certify)")
        else:
            lines.append(f"  lower bound  {self.lower_bound:,.3f}")
            lines.append(
                f"  certificate  within {100 * self.gap:.3g} % of the global optimum, proven"
            )
            if self.undecided is not None:
                verdict = "optimal; " if self.optimal else ""
                lines.append(
                    f"  pixels       {verdict}{share_proven(self.proven)} of the pixels are "
                    "proven optimal: every optimum has their label"
                )
        label, constant = self.best_constant
        if isfinite(constant):
            lines.append(f"  for scale    all pixels labelled {label}: {constant:,.3f}")
        if model := self.info.get("model"):
            lines.append(f"  model        {_described(model)}")
        last = len(self.trace) - 1
        lines.append(
            f"  effort       {self.seconds:.3f} s, {self.iterations} iterations, "
            f"{self.trace.ordered_calls[last]} ordered and {self.trace.plain_calls[last]} plain "
            "filter calls"
        )
        lines.append(f"  ended        {self.message}")
        return "\n".join(lines)


def _described(model: dict[str, Any]) -> str:
    """Return the numbers of a model in words.

    Examples
    --------
    >>> _described({"grain": 2.0, "strength": 0.03, "sigma_xy": 10, "stands_aside": True})
    'strength 0.03 for scores that resolve 2 pixels; sigma_xy 10: nearly the input'
    """
    rest = ", ".join(
        f"{name} {np.array2string(np.asarray(value), precision=3)}"
        for name, value in model.items()
        if name not in ("grain", "strength", "stands_aside")
    )
    if model.get("stands_aside"):
        rest += ": nearly the input"
    if "grain" not in model:
        return rest
    head = f"strength {model['strength']:.2g} for scores that resolve {model['grain']:.2g} pixels"
    return f"{head}; {rest}"


def _plain(value: Any) -> Any:
    """Return `value` with arrays as lists and None for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
