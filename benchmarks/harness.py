"""What the benchmarks share: problems, clocks, tables, the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import densecrf
from benchmarks.tables import RESULTS
from densecrf import DenseCRF
from densecrf.model.kernels import Bilateral, Features, Spatial
from densecrf.native import core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("DENSECRF_SHARED", ROOT.parent / "shared")) / "data"
LABELS = 21
# Spatial sigma and weight, bilateral sigmas and weight: the paper's, tuned for DC and for MF.
DC = (3.535267, 4.494162, 31.232626, 7.94997, 3.398022)
MF = (1.0, 14.935692, 35.865959, 11.209644, 8.057546)


class NotAtHandError(Exception):
    """Data that a benchmark needs is not on this machine."""


@dataclass
class Section:
    """One benchmark's part of the report."""

    title: str
    text: str
    columns: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)

    def markdown(self) -> str:
        """Return the section as Markdown."""
        lines = [f"## {self.title}", "", self.text.strip(), ""]
        if self.rows:
            lines += [
                "| " + " | ".join(self.columns) + " |",
                "|" + "---|" * len(self.columns),
                *("| " + " | ".join(map(str, row)) + " |" for row in self.rows),
                "",
            ]
        return "\n".join(lines)


def keep(name: str, section: Section, command: str, about: str, folder: Path = RESULTS) -> None:
    """Write a section to a JSON file, with its command, date, machine and version."""
    result = {
        "title": section.title,
        "command": command,
        "date": date.today().isoformat(),
        "machine": about,
        "version": densecrf.__version__,
        "columns": section.columns,
        "rows": section.rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False, default=str)
    (folder / f"{name}.json").write_text(f"{text}\n", "utf-8")


def median_seconds(
    call: Callable[[], Any], *, threads: int = 1, repeat: int = 5, budget: float = 20.0
) -> float:
    """Return the median time of `repeat` calls after one to warm up; fewer beyond the budget.

    With one thread that is CPU time, which other programs on the machine disturb less.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    taken = [_timed(call, clock)]
    if taken[0] * (repeat + 1) <= budget:
        taken = []
    while len(taken) < repeat and sum(taken) < budget:
        taken.append(_timed(call, clock))
    return statistics.median(taken)


def in_turn(
    *calls: Callable[[], Any], clock: Callable[[], float] = time.process_time, repeat: int = 7
) -> list[float]:
    """Return the median time of each call, run in turn so that disturbances hit all alike."""
    rounds = rounds_in_turn(*calls, clock=clock, repeat=repeat)
    return [statistics.median(column) for column in rounds.T]


def rounds_in_turn(
    *calls: Callable[[], Any], clock: Callable[[], float] = time.process_time, repeat: int = 7
) -> np.ndarray:
    """Return the times (rounds, calls) of calls that are run in turn, after a round to warm up."""
    for call in calls:
        call()
    return np.array([[_timed(call, clock) for call in calls] for _ in range(repeat)])


def one_and_two_threads(*calls: Callable[[], Any], repeat: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield numbers of threads with times (rounds, calls): CPU time of one, elapsed time of two."""
    for threads, clock in ((1, time.process_time), (2, time.perf_counter)):
        with cores(threads):
            yield threads, rounds_in_turn(*calls, clock=clock, repeat=repeat)


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Let the process run on so many cores, and use as many threads by default."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _timed(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return clock() - started


def photographs() -> dict[str, np.ndarray]:
    """Return real images: those in scikit-image's package and, where they are, two of MSRC."""
    from skimage import data

    images = {name: getattr(data, name)() for name in ("astronaut", "coffee", "chelsea")}
    for name in ("2_14_s", "4_11_s"):
        path = SHARED / "msrc_paper" / f"{name}.npz"
        if path.exists():
            images[f"MSRC {name}"] = np.load(path)["image"]
    return images


@dataclass(frozen=True)
class Published:
    """An image of the paper with the unaries that its authors published."""

    image: np.ndarray
    unary: np.ndarray

    def model(
        self, normalization: str = "symmetric", parameters: tuple[float, ...] = DC
    ) -> DenseCRF:
        """Return the paper's model of the image."""
        return DenseCRF(self.unary, two_kernels(self.image, parameters), normalization)


def published(name: str = "2_14_s", data: Path = SHARED) -> Published:
    """Return one of the paper's images."""
    path = data / "msrc_paper" / f"{name}.npz"
    if not path.exists():
        raise NotAtHandError(f"MSRC image {name} with the paper's unaries is not at {path}")
    arrays = np.load(path)
    unary = np.ascontiguousarray(np.moveaxis(arrays["unary"], -1, 0))
    return Published(np.ascontiguousarray(arrays["image"]), unary)


def two_kernels(image: np.ndarray, parameters: tuple[float, ...]) -> list[Spatial | Bilateral]:
    """Return the spatial and the bilateral kernel of five parameters, ordered as in `DC`."""
    sigma, weight, xy, color, bilateral = parameters
    return [Spatial(sigma, weight), Bilateral(image, xy, color, bilateral)]


def photograph(pixels: int) -> np.ndarray:
    """Return a photograph resampled to 213 × 320, 320 × 480 or 375 × 500."""
    from skimage import data
    from skimage.transform import resize

    shape = {68_160: (213, 320), 153_600: (320, 480), 187_500: (375, 500)}[pixels]
    resized = resize(data.coffee(), shape, anti_aliasing=True, preserve_range=True)
    return np.asarray(np.rint(resized), np.uint8)


def standard_kernels(image: np.ndarray) -> dict[str, Spatial | Bilateral | Features]:
    """Return the kernels whose times the paper's program is known for."""
    return {
        "spatial 1": Spatial(1),
        "spatial 3.5": Spatial(3.5),
        "bilateral 31.2/7.95": Bilateral(image, 31.2, 7.95),
        "bilateral 1/1": Bilateral(image, 1, 1),
    }


def standard_features(pixels: int, *, fine: bool = False) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and features of the standard kernels on a photograph; optionally the finest."""
    image = photograph(pixels)
    for name, kernel in standard_kernels(image).items():
        if fine or name != "bilateral 1/1":
            yield name, kernel.features(image.shape[:2])


def random_scores(pixels: int) -> np.ndarray:
    """Return label-major random scores in [0, 1)."""
    return np.random.default_rng(0).random((LABELS, pixels), dtype=np.float32)


def machine() -> str:
    """Describe the machine in a line."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x
        ]
        model = names[0] if names else model
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return (
        f"{model}, {core().available_threads()} threads available, {core().isa()}, "
        f"{platform.system()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"densecrf {densecrf.__version__}{load}"
    )


def milliseconds(seconds: float) -> str:
    """Format a time with three digits."""
    return f"{1e3 * seconds:,.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def times(ratio: float) -> str:
    """Format a ratio."""
    return f"{ratio:.3g} ×" if ratio < 100 else f"{ratio:.0f} ×"
