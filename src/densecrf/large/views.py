"""Sources seen in another way: axes in another order, one more or one less, resized, masked."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.large.sources import Absent, Source
from densecrf.large.tiles import Box, shape_of
from densecrf.model.reading import picked
from densecrf.model.resample import resize_window

__all__ = ["Coarse", "Picked", "Resized", "Valid", "holds_data"]


def holds_data(
    values: npt.NDArray[Any], nodata: float | None, axis: int | tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """Return which pixels hold data: not all of their channels along an axis are nodata."""
    if nodata is None:
        return np.ones(np.delete(values.shape, axis), bool)
    empty = np.isnan(values) if np.isnan(nodata) else values == nodata
    return ~np.asarray(empty.all(axis))


@dataclass(frozen=True)
class Valid:
    """The pixels of a source (*grid, channels) that hold data, and are inside a mask."""

    source: Source
    nodata: float
    mask: Source | None = None
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(bool))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.source.shape[:-1]

    @property
    def identity(self) -> str:
        """The source's and the mask's."""
        return f"{self.source.identity} {'' if self.mask is None else self.mask.identity}"

    @property
    def portable(self) -> bool:
        """Whether a worker can open it."""
        return self.source.portable and (self.mask is None or self.mask.portable)

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return a window."""
        values = self.source.read((*box, slice(0, self.source.shape[-1])))
        held = holds_data(values, self.nodata, -1)
        if self.mask is not None:
            held &= np.asarray(self.mask.read(box)).reshape(held.shape).astype(bool)
        return np.asarray(held)

    def absent(self, box: Box) -> Absent:  # noqa: ARG002
        """Return nothing: what is missing is outside, or of the image."""
        return []


@dataclass(frozen=True)
class Picked:
    """A source with some of its axes in another order; without the others, which are of one.

    An axis None is a new one, of one.
    """

    source: Source
    axes: tuple[int | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(1 if axis is None else self.source.shape[axis] for axis in self.axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.source.dtype

    @property
    def identity(self) -> str:
        """The source's, and the order."""
        return f"{self.source.identity} {self.axes}"

    @property
    def portable(self) -> bool:
        """Whether a worker can open it."""
        return self.source.portable

    @property
    def nodata(self) -> float | None:
        """What pixels without data hold."""
        return getattr(self.source, "nodata", None)

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return a window."""
        axes = tuple(axis for axis in self.axes if axis is not None)
        return picked(self.source.read(self._theirs(box)), axes).reshape(shape_of(box))

    def absent(self, box: Box) -> Absent:
        """Return the missing chunks of a window."""
        found = self.source.absent(self._theirs(box))
        new = slice(0, 1)
        return [
            (name, tuple(new if axis is None else part[axis] for axis in self.axes))
            for name, part in found
        ]

    def _theirs(self, box: Box) -> Box:
        theirs = [slice(0, 1)] * len(self.source.shape)
        for part, axis in zip(box, self.axes, strict=True):
            if axis is not None:
                theirs[axis] = part
        return tuple(theirs)


@dataclass(frozen=True)
class Resized:
    """Scores (labels, *grid) of a lower resolution, brought to the size of a plane image."""

    source: Source
    shape: tuple[int, ...]
    nodata: None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of interpolated values."""
        return np.dtype(np.float64 if self.source.dtype == np.float64 else np.float32)

    @property
    def identity(self) -> str:
        """The source's, and the size."""
        return f"{self.source.identity} {self.shape}"

    @property
    def portable(self) -> bool:
        """Whether a worker can open it."""
        return self.source.portable

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return a window."""
        labels, *places = box

        def window(part: Box) -> npt.NDArray[Any]:
            return self.source.read((labels, *part))

        return resize_window(window, self.source.shape[1:], self.shape[1:], tuple(places))

    def absent(self, box: Box) -> Absent:
        """Return the missing chunks, each as all of the window: where it counts is not known."""
        whole = (box[0], *(slice(0, side) for side in self.source.shape[1:]))
        return [(name, box) for name, _ in self.source.absent(whole)]


@dataclass(frozen=True)
class Coarse:
    """A source of a reduced grid, each of whose pixels stands for a block, as if it were not."""

    source: Source
    shape: tuple[int, ...]

    @staticmethod
    def fits(reduced: tuple[int, ...], shape: tuple[int, ...]) -> bool:
        """Return whether a grid may be another one, reduced by one factor of 2 at least.

        Along some of its axes or along all, rounded up or down.
        """
        if len(reduced) != len(shape) or not all(reduced):
            return False
        sides = [each for each in zip(shape, reduced, strict=True) if each[0] != each[1]]
        least = max((side / (small + 1) for side, small in sides), default=1.0)
        most = min((side / max(small - 1, 1e-9) for side, small in sides), default=1.0)
        return least < most and all(2 * small <= side + 1 for side, small in sides)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        return self.source.dtype

    @property
    def identity(self) -> str:
        """The source's."""
        return self.source.identity

    @property
    def portable(self) -> bool:
        """Whether a worker can open it."""
        return self.source.portable

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return a window."""
        places = [
            (2 * np.arange(part.start, part.stop) + 1) * small // (2 * side)  # of pixels' centres
            for part, side, small in zip(box, self.shape, self.source.shape, strict=True)
        ]
        window = tuple(slice(int(each[0]), int(each[-1]) + 1) for each in places)
        return self.source.read(window)[np.ix_(*(each - each[0] for each in places))]

    def absent(self, box: Box) -> Absent:  # noqa: ARG002
        """Return nothing: what a mask lacks is its fill value."""
        return []
