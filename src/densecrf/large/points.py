r"""Point clouds larger than memory: slabs of space instead of tiles.

Points are sorted along the longest axis of the cloud. A *tile* is a range of them, and its margin
the points before and after it within the reach of sums: at most :math:`4 \sqrt{3/2}` standard
deviations of the positions, for any order of the features (`densecrf.large.tiles`). Everything else
is as for images.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from densecrf.io.atomic import atomic_writer
from densecrf.io.errors import FileFormatError
from densecrf.large.energy import Kernel, Local, TiledEnergy
from densecrf.large.outputs import checked_output
from densecrf.large.planning import checked_kernels, label_count, scratch_of
from densecrf.large.refinement import solved, threads_of
from densecrf.large.result import LargeResult
from densecrf.large.rounds import Progress, TiledRun
from densecrf.large.sources import Source, open_source
from densecrf.large.tiles import REACH, Box, Tiling
from densecrf.model.parameters import Parameters
from densecrf.model.reading import KINDS
from densecrf.validation import ArgumentError, check_choice, check_finite, check_integer

__all__ = ["refine_points"]


@dataclass(frozen=True)
class _Cloud(TiledEnergy):
    """A run on points; `image` holds their features, (n, channels)."""

    points: Source | None = None
    along: int = 0

    @cached_property
    def margin(self) -> tuple[int, ...]:
        """Unknown: it is in units of space, not in points."""
        return (0,)

    @property
    def sources(self) -> dict[str, Source | None]:
        """The inputs, by the names of their arguments."""
        return {**super().sources, "points": self.points}

    def read_by_workers(self) -> dict[str, Source | None]:
        """Return nothing: workers read sorted copies."""
        return {}

    @property
    def copies(self) -> Path:
        """The folder of the sorted inputs."""
        return self.folder / "arrays" / "inputs"

    def ready(self) -> "_Cloud":
        """Return the run on copies of the inputs, in the order of the points along the axis."""
        points = cast("Source", self.points)
        n = points.shape[0]
        along = slice(self.along, self.along + 1)
        x = points.read("points", (slice(0, n), along))[:, 0].astype(np.float64)
        order = np.argsort(x, kind="stable")
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        for name, values in (("x", x[order]), ("order", order)):
            with atomic_writer(self.copies / f"{name}.npy", durable=False) as file:
                np.save(file, values)
        sources = {"points": points, "image": self.image, "scores": self.scores}
        copies = {
            name: _copied(source, -1 if name == "scores" else 0, place, self.copies / f"{name}.npy")
            for name, source in sources.items()
            if source is not None
        }
        return replace(self, **cast("Any", copies))

    def local(self, box: Box, reaches: int = 1) -> Local:
        """Return a slab with its margin."""
        x = np.load(self.copies / "x.npy", mmap_mode="r")
        reach = reaches * REACH * max(kernel.positions[self.along] for kernel in self.kernels)
        (part,) = box
        first, last = x[part.start] - reach, x[part.stop - 1] + reach
        outer = slice(int(np.searchsorted(x, first)), int(np.searchsorted(x, last, "right")))
        pixels = np.arange(outer.stop - outer.start)
        return Local(box, (outer,), pixels, np.arange(part.start, part.stop) - outer.start)

    def features(self, local: Local) -> list[npt.NDArray[np.float64]]:
        """Return the features of each kernel."""
        points = _rows("points", cast("Source", self.points), local)
        colors = None
        if any(kernel.colors is not None for kernel in self.kernels):
            colors = _rows("features", cast("Source", self.image), local)
        out = []
        for kernel in self.kernels:
            parts = [points / kernel.positions]
            if kernel.colors is not None and colors is not None:
                parts.append(colors / kernel.colors)
            out.append(np.hstack(parts))
        return out


def _rows(name: str, source: Source, local: Local) -> npt.NDArray[np.float64]:
    """Read the rows of a slab with its margin."""
    values = source.read(name, (*local.outer, slice(0, source.shape[1]))).astype(np.float64)
    check_finite(name, values)
    return values


def refine_points(
    points: Any,
    probs: Any,
    kernels: Sequence[Kernel],
    *,
    features: Any = None,
    out: Any = None,
    tile: int = 1_000_000,
    gap: float | None = None,
    kind: str | None = None,
    n_labels: int | None = None,
    void: Any = "auto",
    confidence: float = 1.0,
    clip: float = 1e-5,
    normalization: str = "symmetric",
    method: str = "lp",
    max_iterations: int | None = None,
    inner: int = 8,
    client: Any = None,
    threads: int | None = None,
    scratch: Any = None,
    progress: Progress | None = None,
) -> LargeResult:
    """Label a point cloud that does not fit into memory; energy and bound are the whole cloud's.

    Parameters
    ----------
    points : path-like or array, (n, d)
        Positions.
    probs : path-like or array, (labels, n) or (n,)
        Scores of the points: numbers, one integer label, or one foreground probability each.
    kernels : sequence of Kernel
        Weights, standard deviations of positions and optionally of features.
    features : path-like or array, (n, channels), optional
        Colours, normals or intensities, not rescaled.
    out : path-like, optional
        A ``.npy`` file for the labels, in the order of the points.
    tile : int
        Points of a slab.
    gap, kind, n_labels, void, confidence, clip, normalization, method, max_iterations, inner
        As for `densecrf.large.refine`.
    client, threads, scratch, progress
        As for `densecrf.large.refine`.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.random.default_rng(0).random((200, 3))
    >>> p = np.where(points[:, 0] < 0.5, 0.8, 0.3)
    >>> from densecrf.large import Kernel, refine_points
    >>> result = refine_points(points, p, [Kernel(1.0, 0.1)], tile=80)
    >>> bool((result.labels == (points[:, 0] < 0.5)).mean() > 0.9), result.gap < 0.01
    (True, True)
    """
    started = time.perf_counter()
    path = checked_output(out, points, probs, features)
    if path is not None and path.suffix != ".npy":
        raise ArgumentError("out", str(out), "labels of points are written as .npy")
    where, scores = open_source("points", points), open_source("probabilities", probs)
    if len(where.shape) != 2 or not all(where.shape):
        raise ArgumentError("points", ..., f"shape {where.shape}; give (points, axes)")
    n, axes = where.shape
    if scores.shape[-1:] != (n,) or len(scores.shape) > 2:
        remedy = f"shape {scores.shape} for {n} points; give (labels, points) or (points,)"
        raise ArgumentError("probabilities", ..., remedy)
    known = None if features is None else open_source("features", features)
    for name, source in (("points", where), ("probabilities", scores), ("features", known)):
        if source is not None:
            _check_complete(name, source)
    if known is not None and (len(known.shape) != 2 or known.shape[0] != n):
        remedy = f"shape {known.shape} for {n} points; give (points, channels)"
        raise ArgumentError("features", ..., remedy)
    integers = kind == "labels" or (kind is None and scores.dtype.kind in "bui")
    content = "scores" if len(scores.shape) == 2 else "labels" if integers else "map"
    job = _Cloud(
        scratch_of(path, scratch),
        Tiling.of((n,), (check_integer("tile", tile, at_least=2),)),
        known,
        scores,
        None,
        content,
        None if kind is None else check_choice("kind", kind, KINDS),
        label_count(scores, content, n_labels),
        checked_kernels(kernels, axes, 0 if known is None else known.shape[1]),
        {"void": void, "confidence": confidence, "clip": clip},
        (0.0, 255.0),  # features are not rescaled
        check_choice("normalization", normalization, ("symmetric", "none")),
        check_choice("method", method, ("lp", "mf5")),
        check_integer("inner", inner, at_least=1, at_most=19),
        threads_of(threads, client),
        points=where,
        along=_longest(where),
    )
    result = solved(
        job,
        Parameters(1, 0, 1, 1, 0, label_costs=None),
        partial(_write, path),
        gap=gap,
        max_iterations=max_iterations,
        client=client,
        progress=progress,
    )
    result.seconds = time.perf_counter() - started
    return result


def _write(path: Path | None, run: TiledRun, result: LargeResult) -> None:
    """Write the labels in the order of the points, or keep them in memory."""
    order = np.load(cast("_Cloud", run.job).copies / "order.npy")
    result.labels = np.empty(len(order), run.dtype)
    for box in run.job.tiling.blocks((slice(0, len(order)),)):
        result.labels[order[box]] = run.block(box)
    if path is not None:
        with atomic_writer(path) as file:
            np.save(file, result.labels)


def _check_complete(name: str, source: Source) -> None:
    """Refuse points whose chunk is missing."""
    absent = source.absent(tuple(slice(0, side) for side in source.shape))
    if absent:
        remedy = f"{name}: chunk {absent[0][0]} is missing, and {len(absent) - 1} more"
        raise FileFormatError(source.place, f"{remedy}; complete the copy")


def _longest(points: Source) -> int:
    """Return the longest axis of the cloud."""
    low, high = [], []
    for box in Tiling.of(points.shape[:1], (2_000_000,)).tiles(0):
        part = points.read("points", (*box, slice(0, points.shape[1])))
        check_finite("points", part)
        low.append(part.min(0))
        high.append(part.max(0))
    return int((np.max(high, 0) - np.min(low, 0)).argmax())


def _copied(source: Source, axis: int, place: npt.NDArray[np.int64], path: Path) -> Source:
    """Write a source's rows to their new positions, a few at a time; return the copy."""
    if not path.exists():
        with atomic_writer(path, durable=False) as file:
            shape = source.shape
            out = np.lib.format.open_memmap(file.name, "w+", source.dtype, shape)
            for (rows,) in Tiling.of((len(place),), (2_000_000,)).tiles(0):
                box = [slice(0, side) for side in shape]
                box[axis] = rows
                at: list[Any] = [slice(None)] * len(shape)
                at[axis] = place[rows]
                out[tuple(at)] = source.read(path.stem, tuple(box))
            out.flush()
    return open_source(path.stem, path)
