"""Five mean-field iterations, model construction included, against pydensecrf."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import peer
from benchmarks.harness import (
    LABELS,
    Section,
    milliseconds,
    one_and_two_threads,
    photograph,
    times,
    two_kernels,
)
from densecrf import DenseCRF
from densecrf.pydensecrf import densecrf as facade

TEXT = """
Five mean-field iterations on a photograph of 320 × 480 with 21 labels, spatial kernel 3 and
bilateral kernel 60 / 13, the model's construction included, in milliseconds: medians of {repeat}
rounds, in turn; CPU time with one thread, elapsed time with two. *facade* is
`densecrf.pydensecrf`, which repeats pydensecrf's numbers (one blur direction, the pixel's own term
kept); *densecrf* is `DenseCRF(...).solve("mf5")`, symmetric blur, own term left out, its labelling
scored. Labels equal to pydensecrf's: facade {same:.3f} %.
"""
PARAMETERS = (3.0, 3.0, 60.0, 13.0, 10.0)


def run(scale: str) -> Section:
    """Measure one and two threads."""
    repeat = 3 if scale == "small" else 7
    image = photograph(153_600)
    unary = smooth_unary(image.shape[:2])

    def ours() -> np.ndarray:
        return DenseCRF(unary, two_kernels(image, PARAMETERS)).solve("mf5").labels

    def theirs() -> np.ndarray:
        return peer.mean_field(unary, image, PARAMETERS)

    def alike() -> np.ndarray:
        return peer.run_facade(facade, unary, image, PARAMETERS, 5)

    rows: list[tuple[Any, ...]] = []
    same = float("nan")
    calls = [alike, ours, *([theirs] if peer.installed() else [])]
    if peer.installed():
        same = 100 * float((alike().argmax(0) == theirs().argmax(0)).mean())
    for threads, seconds in one_and_two_threads(*calls, repeat=repeat):
        row = [threads, *map(milliseconds, seconds)]
        if peer.installed():
            row += [times(seconds[2] / seconds[0]), times(seconds[2] / seconds[1])]
        rows.append(tuple(row))
    columns = ("threads", "facade", "densecrf", "pydensecrf")
    columns += ("pydensecrf / facade", "pydensecrf / densecrf")
    return Section("Mean field", TEXT.format(repeat=repeat, same=same), columns, rows)


def smooth_unary(shape: tuple[int, int], labels: int = LABELS) -> np.ndarray:
    """Return energies (labels, *shape) of random but smooth scores."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    scores = np.stack([40 * gaussian_filter(rng.normal(size=shape), 15) for _ in range(labels)])
    return np.asarray(np.log(np.exp(scores).sum(0)) - scores, np.float32)
