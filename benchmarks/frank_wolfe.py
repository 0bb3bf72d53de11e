"""Euclidean Frank-Wolfe beside mean field and the linear program: energy, CPU time, gradient."""

from __future__ import annotations

import json
import time
import warnings
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.harness import SHARED, NotAtHandError, Section, two_kernels
from densecrf import DenseCRF
from densecrf.problem.problem import problem_of
from densecrf.solvers.efw import euclidean_frank_wolfe
from densecrf.solvers.mean_field import mean_field

if TYPE_CHECKING:
    from collections.abc import Callable

PARAMETERS = (3.0, 3.0, 60.0, 13.0, 10.0)
EVERY = 12  # image of Val
ALL = {"tolerance": 0.0}
METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]] | None] = {
    "`mf`, 5 iterations": (mean_field, {"iterations": 5, **ALL}),
    "`mf`, 10 iterations": (mean_field, {"iterations": 10, **ALL}),
    "`mf`": (mean_field, {}),
    "`efw`, 5 iterations": (euclidean_frank_wolfe, {"iterations": 5, **ALL}),
    "`efw`, 10 iterations": (euclidean_frank_wolfe, {"iterations": 10, **ALL}),
    "`efw`, 10 iterations, step 1": (
        euclidean_frank_wolfe,
        {"iterations": 10, "step": 1.0, **ALL},
    ),
    "`efw`, 10 iterations, λ = 0": (
        euclidean_frank_wolfe,
        {"iterations": 10, "regularization": 0.0, **ALL},
    ),
    "`efw`": (euclidean_frank_wolfe, {}),
    "`lp`, proven to 0.1 %": None,
}
LAYERS = {
    "`mf`, 5 iterations": "mf5",
    "`efw`, 5 iterations": "efw",
    "`lp`, proven to 0.1 %": "lp",
}
TEXT = """
Energies are above the bound of `lp`. CPU time of one thread is that of the iterations and of one
evaluation of the energy, without the construction of the lattices, over that of five mean-field
iterations. *Layer* is the torch layer's forward and backward pass on the CPU, over that of five
mean-field iterations, and the share of pixels whose logits get a gradient above 1e-6 of the
largest, of the cross-entropy with the ground truth; its step of `efw` is constant, 0.5.
"""
COLUMNS = (
    "method",
    "energy above the best bound",
    "largest",
    "iterations",
    "CPU time",
    "layer: CPU time",
    "pixels with a gradient",
)


class Run(NamedTuple):
    """What a method did to an image."""

    energy: float
    iterations: int
    seconds: float


def run(scale: str) -> Section:
    """Solve some images of Val by every method, and differentiate one."""
    folder = SHARED / "msrc"
    if not folder.exists():
        raise NotAtHandError(f"MSRC is not at {folder}")
    names = json.loads((folder / "meta.json").read_text("utf-8"))["splits"]["val"][::EVERY]
    names = names[:2] if scale == "small" else names
    found: dict[str, list[Run]] = {method: [] for method in METHODS}
    bounds = []
    layers: dict[str, tuple[float, float]] = {}
    for name in names:
        image, crf, labels = _read(name)
        assert crf.pairwise.mass is not None  # builds the lattices
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bounds.append(crf.solve("lp", threads=1).lower_bound or 0.0)
            for method in METHODS:
                found[method].append(_solve(crf, method))
            layers = layers or _layers(image, crf, labels)
    base = [each.seconds for each in found["`mf`, 5 iterations"]]
    rows = [
        _row(method, runs, bounds, base, layers.get(LAYERS.get(method, "")), layers["mf5"][0])
        for method, runs in found.items()
    ]
    title = f"{len(names)} images of MSRC Val, spatial 3/3, bilateral 60/13/10: medians"
    return Section(title, TEXT, COLUMNS, rows)


def _read(name: str) -> tuple[np.ndarray, DenseCRF, np.ndarray]:
    """Return image, model and labels."""
    from PIL import Image

    folder = SHARED / "msrc"
    image = np.array(Image.open(folder / "images" / f"{name}.png").convert("RGB"))
    logits = np.load(folder / "logits" / f"{name}.npz")["logits"]
    crf = DenseCRF.from_logits(logits, two_kernels(image, PARAMETERS), axis=-1)
    return image, crf, np.array(Image.open(folder / "labels" / f"{name}.png"))


def _solve(crf: DenseCRF, name: str) -> Run:
    chosen, began = METHODS[name], time.process_time()
    if chosen is None:
        result = crf.solve("lp", threads=1)
        return Run(result.energy, result.iterations, time.process_time() - began)
    problem, (method, options) = problem_of(crf, 1), chosen
    steps = enumerate(method(problem, problem.unary_marginals(), **options), 1)
    count, last = deque(steps, maxlen=1).pop()
    energy = problem.energy(problem.steps.argmax(last.y))
    return Run(energy, count, time.process_time() - began)


def _layers(image: np.ndarray, crf: DenseCRF, labels: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return seconds of both passes, and the share of pixels with a gradient, by method."""
    import torch

    from densecrf.torch import DenseCRF as Layer

    given = torch.from_numpy(-crf.unary.reshape(1, crf.n_labels, *crf.shape))
    picture = torch.from_numpy(np.moveaxis(image, -1, 0)[None])
    truth = torch.from_numpy(labels[None].astype(np.int64))
    sigma, weight, xy, color, bilateral = PARAMETERS
    found = {}
    for method in LAYERS.values():
        layer = Layer(
            spatial_sigma=sigma,
            spatial_weight=weight,
            bilateral_sigma_xy=xy,
            bilateral_sigma_color=color,
            bilateral_weight=bilateral,
            method=method,
        )
        scores, began = given.clone().requires_grad_(), time.process_time()
        refined = layer(logits=scores, image=picture)
        torch.nn.functional.nll_loss(refined, truth, ignore_index=255).backward()
        seconds = time.process_time() - began
        assert scores.grad is not None
        size = scores.grad.abs().amax(1)[truth != 255]
        found[method] = (seconds, float((size > 1e-6 * size.max()).float().mean()))
    return found


def _row(
    method: str,
    runs: list[Run],
    bounds: list[float],
    base: list[float],
    layer: tuple[float, float] | None,
    first_layer: float,
) -> tuple[str, ...]:
    excess = [(r.energy - bound) / abs(r.energy) for r, bound in zip(runs, bounds, strict=True)]
    ratios = [each.seconds / first for each, first in zip(runs, base, strict=True)]
    return (
        method,
        f"{100 * median(excess):.2g} %",
        f"{100 * max(excess):.2g} %",
        f"{median(each.iterations for each in runs):.0f}",
        f"{median(ratios):.1f} ×",
        "" if layer is None else f"{layer[0] / first_layer:.1f} ×",
        "" if layer is None else f"{100 * layer[1]:.0f} %",
    )
