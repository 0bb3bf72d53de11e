"""`densecrf.drop_in.pydensecrf` beside the original: the same calls give the same numbers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from problems import log_uniform, pick

import densecrf.drop_in.pydensecrf.densecrf as ours
from densecrf.drop_in.pydensecrf import utils as our_utils

Array = np.ndarray[Any, Any]

HAVE_ORIGINAL = find_spec("pydensecrf") is not None
CLOSE = 1e-4  # of marginals; a difference in the last bit grows by the factor of the weights
CLOSE_SUMS = 1e-2  # without normalisation messages are sums over all pixels, in the thousands
NORMALIZATIONS = (
    "NO_NORMALIZATION",
    "NORMALIZE_BEFORE",
    "NORMALIZE_AFTER",
    "NORMALIZE_SYMMETRIC",
)


def run_facade(rng: np.random.Generator) -> list[str]:
    """Make the calls of a seed on both modules; return where the marginals differ."""
    import pydensecrf.densecrf as original
    from pydensecrf import utils as original_utils

    seed = int(rng.integers(2**31))
    words, mine = _marginals(seed, ours, our_utils)
    _, theirs = _marginals(seed, original, original_utils)
    if not np.isfinite(theirs).all():
        return [] if np.isfinite(mine).all() else [f"{words}: not finite, as the original's"]
    difference = np.abs(mine - theirs).max()
    allowed = CLOSE_SUMS if "NO_NORMALIZATION" in words else CLOSE
    return [] if difference <= allowed else [f"{words}: marginals differ by {difference:.2g}"]


def _marginals(seed: int, module: Any, utils: Any) -> tuple[str, Array]:
    rng = np.random.default_rng(seed)
    labels = int(pick(rng, (2, 2, 3, 5, 21)))
    if rng.random() < 0.3:
        return _points(rng, labels, module)
    height, width = (int(rng.integers(1, 30)) for _ in range(2))
    image = np.kron(rng.integers(0, 256, (5, 5, 3)), np.ones((6, 6, 1)))[:height, :width]
    image = np.ascontiguousarray((image + rng.normal(0, 5, image.shape)).clip(0, 255), np.uint8)
    model = module.DenseCRF2D(width, height, labels)
    model.setUnaryEnergy(_unary(rng, labels, (height, width), utils))
    words = [f"{height} x {width}, {labels} labels"]
    for kind in pick(rng, (("gaussian",), ("bilateral",), ("gaussian", "bilateral"))):
        options = {"normalization": getattr(module, pick(rng, NORMALIZATIONS))}
        options["compat"] = _compatibility(rng, labels)
        sigma = (log_uniform(rng, 0, 2), log_uniform(rng, 0, 2))
        if kind == "gaussian":
            model.addPairwiseGaussian(sxy=sigma, **options)
        else:
            options["srgb"] = tuple(log_uniform(rng, 0.5, 2) for _ in range(3))
            model.addPairwiseBilateral(sxy=sigma, rgbim=image, **options)
        words.append(f"{kind} {sigma} {options}")
    iterations = int(pick(rng, (0, 1, 2, 3)))
    return f"{words}, {iterations} iterations", np.array(model.inference(iterations))


def _points(rng: np.random.Generator, labels: int, module: Any) -> tuple[str, Array]:
    count = int(rng.integers(1, 200))
    features = rng.normal(0, log_uniform(rng, -1, 1), (int(pick(rng, (1, 2, 3, 5))), count))
    model = module.DenseCRF(count, labels)
    model.setUnaryEnergy(rng.normal(0, 2, (labels, count)).astype(np.float32))
    options = {"compat": _compatibility(rng, labels)}
    options["normalization"] = getattr(module, pick(rng, NORMALIZATIONS))
    model.addPairwiseEnergy(features.astype(np.float32), **options)
    iterations = int(pick(rng, (0, 1, 2, 3)))
    words = f"{count} points {features.shape}, {labels} labels, {options}, {iterations} iterations"
    return words, np.array(model.inference(iterations))


def _unary(rng: np.random.Generator, labels: int, size: tuple[int, int], utils: Any) -> Array:
    way = pick(rng, ("softmax", "labels", "energies"))
    if way == "labels":
        given = rng.integers(0, labels + 1, size)
        return np.asarray(utils.unary_from_labels(given, labels, 0.7, zero_unsure=True))
    scores = rng.random((labels, *size)) + 0.05
    if way == "softmax":
        return np.asarray(utils.unary_from_softmax((scores / scores.sum(0)).astype(np.float32)))
    return (3 * scores).reshape(labels, -1).astype(np.float32)


def _compatibility(rng: np.random.Generator, labels: int) -> Any:
    weight = log_uniform(rng, -1, 0.7)
    way = pick(rng, ("number", "number", "vector", "matrix"))
    if way == "number":
        return weight
    shape = labels if way == "vector" else (labels, labels)
    return (weight * rng.random(shape)).astype(np.float32)
