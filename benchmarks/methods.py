"""All methods on one energy: eight MSRC images with a network's logits."""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import SHARED, NotAtHandError, Section, two_kernels
from densecrf import METHODS, DenseCRF, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

IMAGES = ("10_19_s", "12_5_s", "15_8_s", "18_10_s", "1_2_s", "3_6_s", "6_21_s", "9_15_s")
TEXT = """
CPU time, on one thread and in multiples of that of `mf5`, includes a method's starting point but
not the construction of the lattices, which all share.
"""
COLUMNS = (
    "method",
    "energy above the best bound",
    "largest",
    "its own proven gap",
    "ordered + plain filter calls",
    "CPU time",
)


def run(scale: str) -> Section:
    """Solve every image by every method."""
    folder = SHARED / "msrc"
    if not folder.exists():
        raise NotAtHandError(f"MSRC is not at {folder}")
    names = IMAGES[:2] if scale == "small" else IMAGES
    found: dict[str, list[Result]] = {method: [] for method in METHODS}
    seconds: dict[str, list[float]] = {method: [] for method in METHODS}
    for name in names:
        crf = _model(name)
        assert crf.pairwise.mass is not None  # builds the lattices
        for method in METHODS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.process_time()
                found[method].append(crf.solve(method, threads=1))
                seconds[method].append(time.process_time() - began)
    bounds = [result.lower_bound for result in found["lp"]]
    title = f"{len(names)} MSRC images, spatial 3/3, bilateral 60/13/10: medians"
    cost = {method: np.divide(own, seconds["mf5"]) for method, own in seconds.items()}
    rows: list[Sequence[Any]] = [
        _row(method, own, bounds, cost[method]) for method, own in found.items()
    ]
    return Section(title, TEXT, COLUMNS, rows)


def _model(name: str) -> DenseCRF:
    from PIL import Image

    image = np.array(Image.open(SHARED / "msrc" / "images" / f"{name}.png"))
    logits = np.load(SHARED / "msrc" / "logits" / f"{name}.npz")["logits"]
    return DenseCRF.from_logits(logits, two_kernels(image, (3, 3, 60, 13, 10)), axis=-1)


def _row(
    method: str,
    results: list[Result],
    bounds: list[float | None],
    cost: npt.NDArray[np.floating[Any]],
) -> tuple[str, ...]:
    excess = [
        (result.energy - (bound or 0.0)) / abs(result.energy)
        for result, bound in zip(results, bounds, strict=True)
    ]
    gaps = [result.gap for result in results if result.gap is not None]
    ordered = median(result.trace.ordered_calls[-1] for result in results)
    plain = median(result.trace.plain_calls[-1] for result in results)
    return (
        f"`{method}`",
        f"{100 * median(excess):.2g} %",
        f"{100 * max(excess):.2g} %",
        f"{100 * median(gaps):.2g} %" if gaps else "none",
        f"{ordered:.0f} + {plain:.0f}",
        f"{np.median(cost):.1f} ×",
    )
