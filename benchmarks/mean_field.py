"""Five mean-field iterations, model construction included, against pydensecrf: sizes and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import peer
from benchmarks.harness import (
    LABELS,
    NotAtHandError,
    Section,
    milliseconds,
    one_and_two_threads,
    photograph,
    times,
    two_kernels,
)
from densecrf import DenseCRF
from densecrf.drop_in.pydensecrf import densecrf as facade

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = """
Five mean-field iterations on a photograph, spatial kernel 3 and bilateral kernel 60 / 13, the
model's construction included, in milliseconds: medians of {repeat} rounds, in turn; CPU time with
one thread, elapsed time with two. *facade* is `densecrf.drop_in.pydensecrf`, which repeats
pydensecrf's numbers (one blur direction, the pixel's own term kept); *densecrf* is
`DenseCRF(...).solve("mf5")`, symmetric blur, own term left out, its labelling scored. Ratios are
the medians over the rounds, and in brackets what 95 % of the rounds reach. Least share of labels
that the facade has in common with pydensecrf: {same:.3f} %.
"""
PARAMETERS = (3.0, 3.0, 60.0, 13.0, 10.0)
PIXELS = {"small": (68_160,), "medium": (68_160, 153_600, 187_500)}


def run(scale: str) -> Section:
    """Measure one and two threads."""
    if not peer.installed():
        raise NotAtHandError("pydensecrf is not installed")
    repeat = 3 if scale == "small" else 7
    rows: list[tuple[Any, ...]] = []
    same = 1.0
    for pixels in PIXELS.get(scale, PIXELS["medium"]):
        for labels in (2, LABELS):
            image = photograph(pixels)
            calls = _calls(image, labels)
            same = min(same, float((calls[0]().argmax(0) == calls[2]().argmax(0)).mean()))
            for threads, rounds in one_and_two_threads(*calls, repeat=repeat):
                size = f"{image.shape[0]} × {image.shape[1]}"
                medians = (milliseconds(each) for each in np.median(rounds, 0))
                ratios = (_ratio(rounds[:, 2] / rounds[:, ours]) for ours in (0, 1))
                rows.append((size, labels, threads, *medians, *ratios))
    columns = ("pixels", "labels", "threads", "facade", "densecrf", "pydensecrf")
    columns += ("pydensecrf / facade", "pydensecrf / densecrf")
    return Section("Mean field", TEXT.format(repeat=repeat, same=100 * same), columns, rows)


def _calls(image: np.ndarray, labels: int) -> list[Callable[[], np.ndarray]]:
    """Return the facade, our method and pydensecrf."""
    unary = smooth_unary((image.shape[0], image.shape[1]), labels)
    return [
        lambda: peer.run_facade(facade, unary, image, PARAMETERS, 5),
        lambda: DenseCRF(unary, two_kernels(image, PARAMETERS)).solve("mf5").labels,
        lambda: peer.mean_field(unary, image, PARAMETERS),
    ]


def _ratio(of_rounds: np.ndarray) -> str:
    return f"{times(float(np.median(of_rounds)))} ({np.percentile(of_rounds, 5):.2f})"


def smooth_unary(shape: tuple[int, int], labels: int = LABELS) -> np.ndarray:
    """Return energies (labels, *shape) of random but smooth scores."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    scores = np.stack([40 * gaussian_filter(rng.normal(size=shape), 15) for _ in range(labels)])
    return np.asarray(np.log(np.exp(scores).sum(0)) - scores, np.float32)
