"""The permutohedral lattice: linear in pixels, for features of any dimension."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from densecrf.native import core
from densecrf.operators.levels import Doubles, Filter, Levels, PixelArray
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_features,
    check_choice,
    check_threads,
)

__all__ = ["LatticeFilter"]

LARGEST_DIMENSION = 64
MAX_ADAPTIVE_ENTRIES = 1 << 27  # 1 GiB of sorted lists per label


class LatticeFilter(Filter):
    r"""Approximate Gaussian by the permutohedral lattice (Adams, Baek and Davis 2010).

    Parameters
    ----------
    features : array_like, (n, d)
        Features in standard deviations; d from 1 to 64.
    blur : {"symmetric", "forward"}
        ``"symmetric"`` (default) averages both orders of the axes' blurs: an exactly symmetric
        operator. ``"forward"`` is the usual single order, for parity with other software. Its
        energies are those of its symmetrisation, and so are its bounds.
    threads : int, optional
        Threads for the construction.
    precision : {"double", "single"}
        Precision in which pixels are located in the lattice. ``"single"`` is for parity with other
        software: the few pixels on the border of two simplices then fall to the same side.

    Attributes
    ----------
    n : int
        Number of pixels.
    vertices : int
        Number of lattice points.

    Notes
    -----
    The workspace of `ordered` is at most ``4 (A W P + 16 T n)`` bytes, with P lattice points, T
    threads, A = max(2, T), rows of W = 16 ⌈B (H - 1) / 16⌉ floats for H levels and B labels at a
    time: 8, or 4 where 8 would take more than 4 MiB and three times the scores, or more where
    scores reach few levels; see `ordered_workspace`. With spatial kernels, far less is touched.
    `apply` has 16 channels instead of W.

    Examples
    --------
    >>> import numpy as np
    >>> lattice = LatticeFilter(np.arange(12.0).reshape(6, 2) / 5)
    >>> matrix = lattice.apply(np.eye(6))
    >>> bool(np.allclose(matrix, matrix.T, atol=1e-6))
    True
    """

    def __init__(
        self,
        features: Any,
        blur: Literal["symmetric", "forward"] = "symmetric",
        threads: int | None = None,
        *,
        precision: Literal["double", "single"] = "double",
    ) -> None:
        check_choice("blur", blur, ("symmetric", "forward"))
        check_choice("precision", precision, ("double", "single"))
        given: npt.NDArray[np.floating[Any]] = as_features(features)
        self.n, dimension = given.shape
        # For the baselines that build their own lattices; `build_filter` can release them.
        self._features: Callable[[], npt.NDArray[np.floating[Any]]] = lambda: given
        if dimension > LARGEST_DIMENSION:
            raise ArgumentError(
                "features",
                ...,
                f"dimension {dimension} is more than {LARGEST_DIMENSION}; reduce it first, for "
                "example by principal components",
            )
        self.symmetric = blur == "symmetric"
        self._columns: FloatArray | None = None
        self._rows: FloatArray | None = None
        try:
            self._lattice = core().Lattice.build(
                given, check_threads(threads), precision == "single"
            )
        except ValueError as error:
            raise ArgumentError(
                "features",
                ...,
                f"values up to {float(np.abs(given).max()):g} standard deviations are too far "
                f"from zero for {precision} precision; divide by larger standard deviations or "
                "subtract the mean",
            ) from error
        except MemoryError as error:
            raise MemoryError(
                f"features: the lattice of {self.n} pixels in {dimension} dimensions does not fit "
                "in memory; use larger standard deviations or fewer pixels"
            ) from error

    def release_features(self, again: Callable[[], npt.NDArray[np.floating[Any]]]) -> None:
        """Release the features; `again` recomputes them for the baselines that need them."""
        self._features = again

    @property
    def native(self) -> Any:
        """The core's lattice."""
        return self._lattice

    @property
    def vertices(self) -> int:
        """Number of lattice points."""
        return int(self._lattice.vertices)

    @property
    def nbytes(self) -> int:
        """Bytes of the lattice."""
        return int(self._lattice.bytes)

    def ordered_workspace(self, channels: int, levels: int = 10, threads: int = 0) -> int:
        """Return the largest workspace of `ordered`, in bytes."""
        return int(self._lattice.ordered_workspace(channels, levels, threads))

    def diagonal(self) -> Doubles:
        """Return the exact diagonal, which is the same for both orders of the blurs."""
        out = np.empty(self.n)
        self._lattice.diagonal(out, 0)  # with the weights of the rows twice
        if self._rows is not None and self._columns is not None:
            columns = self._columns.astype(np.float64)
            out *= np.divide(columns, self._rows, out=np.zeros_like(out), where=self._rows != 0)
        return out

    def weighted(self, columns: FloatArray | None, rows: FloatArray | None) -> "LatticeFilter":
        """Return a filter on the same lattice with weighted rows and columns."""
        ones = np.ones(self.n, np.float32)
        columns = ones if columns is None else columns
        rows = ones if rows is None else rows
        return self._weighing(self._lattice.scaled(columns, rows, 0), columns, rows)

    def row_sums(self) -> Doubles:
        """Return the mass in double precision."""
        out = np.empty(self.n)
        core().LatticeSum((self._lattice,), [1.0], self.symmetric).row_sums(out, 0)
        return out

    def rescaled(self, scale: FloatArray) -> "LatticeFilter":
        """Return a filter on this lattice; its weights change in place."""
        self._lattice.weigh(scale, scale, 0)
        return self._weighing(self._lattice, scale, scale)

    def _weighing(self, lattice: Any, columns: FloatArray, rows: FloatArray) -> "LatticeFilter":
        columns = columns if self._columns is None else self._columns * columns
        rows = rows if self._rows is None else self._rows * rows
        return self._with(_lattice=lattice, _columns=columns, _rows=rows)

    def _with(self, **changes: Any) -> "LatticeFilter":
        """Return a copy with other attributes and without cached mass."""
        out = object.__new__(LatticeFilter)
        vars(out).update({**vars(self), **changes})
        vars(out).pop("mass", None)
        return out

    def restricted(self, pixels: PixelArray) -> "LatticeFilter":
        """Return the filter among some pixels, on the lattice points that connect them."""
        whole = self._features
        return self._with(
            n=len(pixels),
            _lattice=self._lattice.restricted(np.ascontiguousarray(pixels, np.int32), 0),
            _features=lambda: whole()[pixels],
            _columns=None if self._columns is None else self._columns[pixels],
            _rows=None if self._rows is None else self._rows[pixels],
        )

    def apply_planes(
        self, planes: FloatArray, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Splat, blur, slice; a block of channels at a time."""
        out = np.empty(planes.shape, np.float32) if out is None else out
        self._lattice.apply(planes, out, symmetric=self.symmetric, threads=threads)
        return out

    def apply_double(self, planes: Doubles, threads: int = 0) -> Doubles:
        """Splat, blur, slice in double precision, both orders of the blurs averaged."""
        out = np.empty_like(planes)
        core().LatticeSum((self._lattice,), [1.0], True).apply_double(planes, out, threads)
        return out

    def symmetrised(self) -> "LatticeFilter":
        """Return the filter with both orders of the blurs averaged, on the same lattice."""
        return self._with(symmetric=True)

    def ordered_planes(
        self, scores: FloatArray, levels: Levels, out: FloatArray | None = None, threads: int = 0
    ) -> FloatArray:
        """Filter all levels of a label in one pass, label after label."""
        extents = np.empty((len(scores), 2), np.float32)
        core().extents(scores, None, extents, threads)
        out = np.empty_like(scores) if out is None else out
        out[...] = 0
        self.add_ordered(out, 1.0, scores, None, extents, levels, threads)
        return out

    def add_ordered(
        self,
        out: FloatArray,
        weight: float,
        scores: FloatArray,
        offsets: FloatArray | None,
        extents: FloatArray,
        levels: Levels,
        threads: int = 0,
    ) -> None:
        """Add `weight` times the ordered filter of scores + offsets to `out`.

        `extents`, (channels, 2), are the smallest and largest sum of each channel.
        """
        self._lattice.ordered(
            scores,
            out,
            levels,
            offsets=offsets,
            extents=extents,
            mass=self.mass,
            symmetric=self.symmetric,
            factor=weight,
            threads=threads,
        )

    def ordered_exactly(
        self, scores: FloatArray, order: str, levels: int, threads: int = 0
    ) -> FloatArray:
        """Run one of the baselines."""
        scores = np.ascontiguousarray(scores, np.float32)
        out = np.empty_like(scores)
        if order == "literal":
            core().algorithm3(
                self._lattice,
                scores,
                out,
                levels=levels,
                symmetric=self.symmetric,
                threads=threads,
            )
        elif order == "adaptive":
            self._adaptive(scores, out, threads)
        else:
            self._divide_and_conquer(scores, out, order == "divide-and-conquer", threads)
        return out

    def _divide_and_conquer(
        self, scores: FloatArray, out: FloatArray, rebuild: bool, threads: int
    ) -> None:
        columns = np.ones(self.n, np.float32) if self._columns is None else self._columns
        features = np.ascontiguousarray(self._features(), np.float32)
        fixed = None if rebuild else self._lattice
        core().divide_and_conquer(
            scores,
            out,
            features=features,
            weights=columns,
            fixed=fixed,
            symmetric=self.symmetric,
            threads=threads,
        )
        if rebuild and self._rows is not None:
            out *= self._rows

    def _adaptive(self, scores: FloatArray, out: FloatArray, threads: int) -> None:
        try:
            core().adaptive(
                self._lattice,
                scores,
                out,
                symmetric=self.symmetric,
                max_entries=MAX_ADAPTIVE_ENTRIES,
                threads=threads,
            )
        except MemoryError as error:
            raise MemoryError(
                'order="adaptive": the sorted lists of distinct scores grew beyond '
                f"{8 * MAX_ADAPTIVE_ENTRIES >> 20} MiB; round the scores, use a smaller image, or "
                'order="soft" with more levels'
            ) from error
