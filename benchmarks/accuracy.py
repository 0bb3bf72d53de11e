"""The lattice against the exact Gaussian on real images, for each order of blurs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness import Section, photographs
from densecrf.model.kernels import Bilateral, Spatial
from densecrf.operators import LatticeFilter

TEXT = """
Rows of the lattice's matrix against exp(-½‖f_a - f_b‖²), at some {rows} pixels of each image, in
random neighbourhoods ({images}); medians over the images. *Scale* is the median over pixels of the
lattice's row sum over the exact one. *Error of sums* is the relative error of filtered image values
(the three channels of the photograph and 21 channels of random labels) after one best scale; *error
of entries* the same for single entries of the matrix. *Asymmetry* is ‖K - Kᵀ‖ / ‖K‖ (Frobenius)
over the sampled pixels. *Self* is the mean diagonal entry: 1 in the exact kernel.
"""
COLUMNS = (
    "d",
    "kernel",
    "blur",
    "scale",
    "error of sums",
    "error of entries",
    "asymmetry",
    "self",
)


@dataclass
class Case:
    """A kernel of some dimension."""

    d: int
    name: str
    features: Any


def run(scale: str) -> Section:
    """Measure on three images, or five with the MSRC images at hand; fewer pixels when small."""
    sampled = 200 if scale == "small" else 500
    images = photographs()
    results: dict[tuple[int, str, str], list[np.ndarray]] = {}
    for image in images.values():
        for case in _cases(image[::2, ::2]):
            for blur, found in _measure(case.features, image[::2, ::2], sampled).items():
                results.setdefault((case.d, case.name, blur), []).append(found)
    rows = []
    for (d, name, blur), found in results.items():
        scaled, sums, entries, asymmetry, diagonal = np.median(found, 0)
        percent = (f"{100 * x:.2g} %" for x in (sums, entries, asymmetry))
        rows.append((d, name, blur, f"{scaled:.2f}", *percent, f"{diagonal:.2f}"))
    text = TEXT.format(rows=sampled, images=", ".join(images) + ", at half size")
    return Section("Accuracy of the lattice", text, COLUMNS, rows)


def _cases(image: np.ndarray) -> list[Case]:
    shape = image.shape[:2]
    grey = image.astype(np.float32).mean(-1)
    return [
        Case(2, "spatial 1", Spatial(1).features(shape)),
        Case(2, "spatial 3.5", Spatial(3.5).features(shape)),
        Case(3, "grey 31.2/7.95", Bilateral(grey, 31.2, 7.95).features(shape)),
        Case(3, "grey 60/13", Bilateral(grey, 60, 13).features(shape)),
        Case(5, "colour 31.2/7.95", Bilateral(image, 31.2, 7.95).features(shape)),
        Case(5, "colour 60/13", Bilateral(image, 60, 13).features(shape)),
    ]


def _measure(features: np.ndarray, image: np.ndarray, sampled: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    n = len(features)
    chosen = _neighbourhoods(image.shape[:2], sampled)
    unit = np.zeros((n, len(chosen)), np.float32)
    unit[chosen, np.arange(len(chosen))] = 1
    labels = rng.integers(0, 21, n)
    values = np.concatenate(
        [np.ones((n, 1)), image.reshape(n, -1) / 255, labels[:, None] == np.arange(21)], 1
    ).astype(np.float32)
    exact_rows = _exact_rows(features, chosen)
    exact = exact_rows @ values
    out = {}
    for blur in ("forward", "symmetric"):
        operator = LatticeFilter(features, blur)
        found = operator.apply(values)[chosen]
        matrix = operator.apply(unit)[chosen]  # (a, b), both among the chosen
        out[blur] = np.array(
            [
                np.median(found[:, 0] / exact[:, 0]),
                _error(found[:, 1:], exact[:, 1:]),
                _error(operator.apply(unit).T, exact_rows),
                np.linalg.norm(matrix - matrix.T) / np.linalg.norm(matrix),
                operator.diagonal().mean(),
            ]
        )
    return out


def _neighbourhoods(shape: tuple[int, ...], count: int) -> np.ndarray:
    """Return random pixels in groups of 20, near enough for narrow kernels to connect them."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, shape, (count // 20, 2))
    around = places[:, None, :] + rng.integers(-4, 5, (count // 20, 20, 2))
    row, column = np.clip(around.reshape(-1, 2), 0, np.array(shape) - 1).T
    return np.unique(row * shape[1] + column)


def _exact_rows(features: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the rows of the exact kernel at the chosen pixels."""
    distance = np.zeros((len(chosen), len(features)), np.float32)
    for column in features.T:
        distance += (column[chosen, None] - column[None, :]) ** 2
    return np.asarray(np.exp(-0.5 * distance))


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    """Return the relative error after the best single scale."""
    best = float((found * exact).sum() / (found * found).sum())
    return float(np.linalg.norm(best * found - exact) / np.linalg.norm(exact))
