"""Problems drawn from a seed: models of every kind, small enough for many a second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import densecrf

Array = np.ndarray[Any, Any]

SHAPES = ((1,), (2,), (7,), (40,), (1, 1), (2, 3), (5, 4), (9, 12), (24, 17), (3, 4, 2), (6, 5, 4))
MOST_EXACT = 150  # pixels of models with all pairs, which take long
ENGINES = ("auto", "lattice", "lattice", "exact")
KINDS = ("noise", "noise", "ties", "near ties", "dropped", "adversarial", "adversarial", "scaled",
         "constant", "whole", "huge", "small")  # fmt: skip
TINY = {2: ((3,), (2, 3), (3, 3), (11,)), 3: ((4,), (2, 3), (8,)), 4: ((5,), (2, 3)), 5: ((5,),)}


@dataclass
class Drawn:
    """A model, what it was made of, and how to describe it."""

    crf: densecrf.DenseCRF
    given: list[Array]
    words: dict[str, Any] = field(default_factory=dict)


def pick(rng: np.random.Generator, choices: Any) -> Any:
    """Return one of the choices, as it is."""
    return choices[int(rng.integers(len(choices)))]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Return a number between 10^low and 10^high."""
    return float(10.0 ** rng.uniform(low, high))


def draw(rng: np.random.Generator, *, tiny: bool = False) -> Drawn:
    """Draw a model; a tiny one has few enough labellings to try them all."""
    n_labels = int(pick(rng, (2, 2, 3, 4, 5) if tiny else (2, 2, 3, 4, 6, 11, 21)))
    shape = pick(rng, TINY[n_labels] if tiny else SHAPES)
    kernels, given = _kernels(rng, shape, tiny)
    engine = pick(rng, ("auto", "lattice", "exact", "exact") if tiny else ENGINES)
    if engine == "exact" and int(np.prod(shape)) > MOST_EXACT:
        engine = "lattice"
    if all(isinstance(kernel, densecrf.Spatial) for kernel in kernels) and rng.random() < 0.3:
        engine = "grid"
    options: dict[str, Any] = {
        "normalization": pick(rng, ("symmetric", "none")),
        "filter": engine,
        "blur": pick(rng, ("symmetric", "symmetric", "forward")),
        "compatibility": _compatibility(rng, n_labels),
    }
    unary, kind = _unary(rng, n_labels, shape, kernels, options)
    if rng.random() < 0.1:
        options["ignore"] = rng.random(shape) < 0.3
    unary = _as_users_have_it(rng, unary)
    crf = densecrf.DenseCRF(unary, kernels, **options)
    words = {
        "unary": kind,
        "dtype": str(unary.dtype),
        "shape": shape,
        "n_labels": n_labels,
        "kernels": [(type(kernel).__name__, float(kernel.weight)) for kernel in kernels],
        **{name: _word(value) for name, value in options.items()},
    }
    return Drawn(crf, [unary, *given], words)


def _word(value: Any) -> Any:
    return value if isinstance(value, str | None) else type(value).__name__


def _kernels(
    rng: np.random.Generator, shape: tuple[int, ...], tiny: bool
) -> tuple[list[Any], list[Array]]:
    strength = log_uniform(rng, -3, 6) if rng.random() < 0.5 else log_uniform(rng, -1, 1.5)
    kernels: list[Any] = []
    given: list[Array] = []
    for _ in range(int(rng.integers(0 if not tiny else 1, 4))):
        weight = strength * float(pick(rng, (0.0, 0.1, 1.0, 1.0, 3.0)))
        kind = pick(rng, ("spatial", "spatial", "bilateral", "features"))
        if kind == "spatial":
            kernels.append(densecrf.Spatial(log_uniform(rng, -1, 2), weight))
        elif kind == "bilateral" and len(shape) in (2, 3):
            image = _image(rng, shape)
            given.append(image)
            sigmas = (log_uniform(rng, -0.5, 2), log_uniform(rng, -0.5, 2.5))
            kernels.append(densecrf.Bilateral(image, *sigmas, weight))
        else:
            points = rng.standard_normal((int(np.prod(shape)), int(pick(rng, (1, 2, 3, 5, 8)))))
            points = (points * log_uniform(rng, -2, 1)).astype(pick(rng, ("f4", "f8")))
            given.append(points)
            kernels.append(densecrf.Features(points, weight))
    return kernels, given


def _image(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    image: Array = rng.random((*shape, int(pick(rng, (1, 3, 3))))) * 255
    if rng.random() < 0.3:
        image = np.floor(image / 128) * 128  # a few colours
    if rng.random() < 0.1:
        image[...] = 7.0
    return image.astype(pick(rng, (np.uint8, np.float32, np.float64, np.int16)))


def _compatibility(rng: np.random.Generator, n_labels: int) -> Any:
    kind = pick(rng, ("potts",) * 6 + ("tree", "vector", "matrix"))
    if kind == "potts":
        return None
    if kind == "tree":
        groups = [([0, 1], float(rng.random()))] if n_labels > 2 else []
        return densecrf.LabelTree(n_labels, groups, leaf=rng.uniform(0, 1, n_labels))
    if kind == "vector":
        return rng.uniform(-0.5, 2, n_labels)
    matrix = rng.standard_normal((n_labels, n_labels)) * log_uniform(rng, -1, 1)
    return matrix + matrix.T


def _unary(
    rng: np.random.Generator,
    n_labels: int,
    shape: tuple[int, ...],
    kernels: list[Any],
    options: dict[str, Any],
) -> tuple[Array, str]:
    noise: Array = rng.standard_normal((n_labels, *shape))
    kind = pick(rng, KINDS)
    if kind == "ties":
        return noise.round(0), kind
    if kind == "near ties":
        return 1.0 + 1e-7 * noise.round(1), kind
    if kind == "dropped":
        noise[-1] += 50.0
        return noise, kind
    if kind == "adversarial":
        dual = _dual(rng, n_labels, shape, kernels, options)
        return -dual + pick(rng, (0.0, 1e-6, 1e-3)) * noise, kind
    if kind == "scaled":
        return noise * log_uniform(rng, -6, 6), kind
    if kind == "constant":
        return np.full_like(noise, float(rng.standard_normal())), kind
    if kind == "whole":
        return (noise * 50).astype(np.int64), kind
    if kind == "huge":
        return noise * log_uniform(rng, 6, 37), kind
    if kind == "small":
        return noise * log_uniform(rng, -44, -6), kind
    return noise, kind


def _dual(
    rng: np.random.Generator,
    n_labels: int,
    shape: tuple[int, ...],
    kernels: list[Any],
    options: dict[str, Any],
) -> Array:
    """Return a dual point r: with the unaries -r, its bound is 0 and tight to the last digit."""
    plain = {name: options[name] for name in ("normalization", "filter", "blur")}
    model = densecrf.DenseCRF(np.zeros((n_labels, *shape)), kernels, **plain)
    scores = rng.standard_normal((model.n, n_labels))
    scores = scores.round(1) if rng.random() < 0.5 else scores
    if rng.random() < 0.3:
        scores[:, -1] = 0.0
    r = np.zeros((model.n, n_labels))
    for weight, part in model.pairwise.parts:
        r += 0.5 * weight * part.ordered(scores, order=pick(rng, ("soft", "hard")))
    return r.T.reshape(n_labels, *shape)


def _as_users_have_it(rng: np.random.Generator, unary: Array) -> Array:
    """Return the same numbers (as far as the type holds them) in some memory layout."""
    layout = pick(rng, ("as it is", "f4", "f4", "Fortran", "reversed", "read-only", "f2"))
    if layout == "f4":
        return unary.astype(np.float32)
    if layout == "f2" and np.abs(unary).max(initial=0.0) < 6e4:
        return unary.astype(np.float16)
    if layout == "Fortran":
        return np.asfortranarray(unary)
    if layout == "reversed":
        return np.ascontiguousarray(unary[..., ::-1])[..., ::-1]
    if layout == "read-only":
        unary.setflags(write=False)
    return unary
