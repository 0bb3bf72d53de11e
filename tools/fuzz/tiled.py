"""Tiles beside memory: `large.refine` has the energy of `refine` for the same arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from problems import log_uniform, pick

import densecrf
from densecrf import large
from densecrf.refinement import build

CLOSE = 1e-5  # of an energy: a tile's lattice has other roundings than the whole image's


def run_tiled(rng: np.random.Generator) -> list[str]:
    """Solve an image drawn from the seed in tiles and in memory; return what contradicts."""
    image, probs = _scene(rng)
    options: dict[str, Any] = {
        "axis": 0,
        "strength": float(pick(rng, (0.0, 0.3, 1.0, 1.0, 3.0))),
        "sigma": log_uniform(rng, -0.3, 0.5),
        "sigma_xy": log_uniform(rng, 0, 0.7),
        "sigma_color": log_uniform(rng, 0.7, 2),
        "model": pick(rng, ("default", "pydensecrf", "deeplab")),
    }
    if rng.random() < 0.5:
        options["scale_sigmas"] = bool(rng.random() < 0.5)
    tile = int(pick(rng, (8, 13, 20, 64)))
    method = str(pick(rng, ("lp", "lp", "lp", "mf5")))
    words = (
        f"{image.shape} {image.dtype}, {len(probs)} labels, tiles of {tile}, {method}, {options}"
    )
    limits = {"gap": 1e-2, "max_iterations": 20} if method == "lp" else {}
    crf = build(image, probs, **options)
    tiles = large.refine(image, probs, tile=tile, method=method, threads=1, **limits, **options)
    memory = crf.solve(method, threads=1, **limits)
    return [f"{words}: {text}" for text in _contradictions(crf, tiles, memory)]


def _scene(rng: np.random.Generator) -> tuple[Any, Any]:
    size, labels = (int(rng.integers(2, 40)), int(rng.integers(2, 40))), int(pick(rng, (2, 3, 5)))
    colors = np.kron(rng.integers(0, 256, (5, 5, 3)), np.ones((8, 8, 1)))[: size[0], : size[1]]
    image = (colors + rng.normal(0, 6, colors.shape)).clip(0, 255)
    image = image if rng.random() < 0.8 else image[..., 0]
    probs = rng.random((labels, *size)) ** 3 + 0.02
    return image.astype(np.uint8), (probs / probs.sum(0)).astype(np.float32)


def _contradictions(crf: densecrf.DenseCRF, tiles: Any, memory: densecrf.Result) -> list[str]:
    labels = np.asarray(tiles.labels)
    if labels.shape != crf.shape or labels.min() < 0 or labels.max() >= crf.n_labels:
        return [f"labels of shape {labels.shape} from {labels.min()} to {labels.max()}"]
    own = crf.energy(labels)
    slack = CLOSE * max(1.0, abs(own), float(np.abs(crf.unary).sum()))
    found = []
    if not abs(own - tiles.energy) <= slack:
        found.append(f"energy {tiles.energy!r}, in memory {own!r}")
    ends = (memory.energy, memory.best_constant[1])  # tiles take a constant labelling where better
    if tiles.method == "mf5" and not min(abs(end - own) for end in ends) <= 100 * slack:
        found.append(f"mean field ends at {own!r}, in memory at {memory.energy!r}")
    for one, other, where in ((tiles, memory, "memory"), (memory, tiles, "tiles")):
        bound = one.lower_bound
        if bound is not None and not bound <= other.energy + slack:
            found.append(f"bound {bound!r} above the energy {other.energy!r} of {where}")
    return found
