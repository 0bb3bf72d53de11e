"""How construction, mean field and the linear program scale with threads and image size."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.harness import DC, Section, milliseconds, published, two_kernels
from densecrf import DenseCRF
from densecrf.native import core

TEXT = """
Elapsed milliseconds and, in brackets, how many times faster than with one thread; the least of
three rounds, of two with a megapixel, all numbers of threads in turn. MSRC image 2_14_s (21 labels,
the paper's DC parameters, symmetric normalisation), enlarged; `lp` to a proven gap of 0.1 % at
320 × 213, six iterations at the others, both methods without the construction of the model.
"""
SHAPES = {
    "small": ((213, 320),),
    "medium": ((213, 320), (1000, 1000)),
    "full": ((213, 320), (375, 500), (639, 960), (1000, 1000)),
}


def run(scale: str) -> Section:
    """Measure powers of two up to the threads that there are."""
    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2, core().available_threads())]
    rows: list[tuple[Any, ...]] = []
    for shape in SHAPES[scale]:
        iterations = None if shape == (213, 320) else 6
        repeat = 2 if shape == (1000, 1000) else 3
        image, unary = enlarged(shape)
        crf = DenseCRF(unary, two_kernels(image, DC))
        crf.solve("mf5")

        def construct(count: int, image: Any = image, unary: Any = unary) -> None:
            core().set_default_threads(count)
            assert DenseCRF(unary, two_kernels(image, DC)).pairwise is not None
            core().set_default_threads(0)

        def mf5(count: int, crf: DenseCRF = crf) -> None:
            crf.solve("mf5", threads=count)

        def lp(count: int, crf: DenseCRF = crf, most: int | None = iterations) -> None:
            crf.solve("lp", threads=count, max_iterations=most)

        for call in (construct, mf5, lp):
            rounds = [[_elapsed(call, count) for count in counts] for _ in range(repeat)]
            least = np.min(rounds, 0)
            cells = (f"{milliseconds(s)} ({least[0] / s:.1f})" for s in least)
            rows.append((f"{shape[1]} × {shape[0]}", call.__name__, *cells))
    columns = ("pixels", "", *(f"{count} thread{'s' * (count > 1)}" for count in counts))
    return Section("Threads", TEXT, columns, rows)


def enlarged(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the image and its unaries at this size."""
    from PIL import Image

    paper, size = published(), shape[::-1]
    image = np.array(Image.fromarray(paper.image).resize(size, Image.Resampling.BILINEAR))
    planes = (
        Image.fromarray(plane).resize(size, Image.Resampling.BILINEAR) for plane in paper.unary
    )
    unary = np.stack([np.asarray(plane, np.float32) for plane in planes])
    unary.flags.writeable = False
    return image, unary


def _elapsed(call: Any, count: int) -> float:
    started = time.perf_counter()
    call(count)
    return time.perf_counter() - started
