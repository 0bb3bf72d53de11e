"""Calls with one argument that is wrong, absurd or merely odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from problems import pick

import densecrf

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = (0, -1, 1, 2.5, -1e-300, 1e-320, 1e300, 1e20, -0.0, float("nan"), float("inf"), True,
           10**30, np.float16(1e-7), np.int8(-3), "1", b"1", None, [], (1, 2), {}, 1j, object,
           np.array(3.0), np.array([1.0, 2.0]), np.ma.masked)  # fmt: skip
WORDS = ("", "LP", "lp ", "nonsense", "é", 0, None, ["lp"], 1.5, b"lp")


def _arrays(rng: np.random.Generator) -> Any:
    base = rng.standard_normal((2, 4, 3))
    holed, endless = base.copy(), base.copy()
    holed[0, 1, 2], endless[1, 0, 0] = np.nan, np.inf
    choices = (
        holed, endless, base[0], base[..., None], base[:1], base[:, :0], base[:, :, :2],
        base.astype(complex), base.astype(object), base.astype("U8"), base.astype(bool),
        base.tolist(), [[1], [1, 2]], "array", None, 3.0, np.zeros(()), [], base * 1e300,
        np.ma.masked_less(base, 0), base.astype("M8[s]"), np.full_like(base, 3e38),
        np.full((2, 4, 3), 255, np.uint8), np.full((2, 4, 3), -(2**63)), iter([1, 2]), {1, 2},
        memoryview(b"abc"), np.broadcast_to(np.float32(1), (2, 4, 3)), base.astype(">f4"),
        np.array(["a", 1], object), type, lambda: None,
    )  # fmt: skip
    return pick(rng, choices)


def _image(rng: np.random.Generator) -> Any:
    return rng.random((4, 3, 3)) * 255


def _model(rng: np.random.Generator, **changed: Any) -> densecrf.DenseCRF:
    given: dict[str, Any] = {
        "unary": rng.standard_normal((2, 4, 3)),
        "kernels": [densecrf.Spatial(1.0), densecrf.Bilateral(_image(rng), 3.0, 20.0)],
        **changed,
    }
    return densecrf.DenseCRF(**given)


def _solve(rng: np.random.Generator, **changed: Any) -> Any:
    return _model(rng).solve(**{"max_iterations": 5, "time_limit": 2, **changed})


def _one_of(rng: np.random.Generator, names: tuple[str, ...], pool: Any) -> dict[str, Any]:
    return {pick(rng, names): pick(rng, pool)}


Call = "Callable[[np.random.Generator], tuple[str, Callable[[], Any]]]"


def _model_array(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    name = pick(rng, ("unary", "ignore", "compatibility", "kernels"))
    value = _arrays(rng)
    return name, lambda: _model(rng, **{name: value}).solve("lp", max_iterations=3, time_limit=2)


def _model_word(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    changed = _one_of(rng, ("normalization", "filter", "blur", "kernels"), WORDS)
    return next(iter(changed)), lambda: _model(rng, **changed)


def _kernel(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    name = pick(rng, ("sigma", "sigma_xy", "sigma_color", "weight", "image", "features"))
    value = _arrays(rng) if name in ("image", "features") else pick(rng, NUMBERS)

    def call() -> Any:
        if name == "sigma":
            kernel: Any = densecrf.Spatial(value, 1.0)
        elif name == "features":
            kernel = densecrf.Features(value, 1.0)
        else:
            fine = {"image": _image(rng), "sigma_xy": 3.0, "sigma_color": 20.0, "weight": 1.0}
            kernel = densecrf.Bilateral(**{**fine, name: value})
        return _model(rng, kernels=[kernel]).solve("mf5", time_limit=2)

    return name, call


def _solve_number(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    names = ("gap", "time_limit", "max_iterations", "threads", "iterations", "cells", "polish",
             "round_every", "settle_every", "accuracy", "least_inner")  # fmt: skip
    changed = _one_of(rng, names, NUMBERS)
    return next(iter(changed)), lambda: _solve(rng, **changed)


def _proximal(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    names = ("lam", "K", "T", "levels", "order", "inner", "inner_steps", "tolerance",
             "label_threshold", "confidence", "max_share", "restricted_lam")  # fmt: skip
    changed = _one_of(rng, names, (*NUMBERS, *WORDS))
    return next(iter(changed)), lambda: _solve(rng, method="prox-lp-acc", **changed)


def _solve_word(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    changed = _one_of(rng, ("method", "init", "device", "callback", "no_such_option"), WORDS)
    if changed.get("device") == 0:  # the first CUDA device, where there is one: not hostile
        changed["device"] = "cuda:99"
    return next(iter(changed)), lambda: _solve(rng, **changed)


def _init(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    value = _arrays(rng)
    return "init", lambda: _solve(rng, init=value)


def _questions(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    crf, value = _model(rng), _arrays(rng)
    name = pick(rng, ("labels", "y"))
    return name, lambda: crf.energy(value) if name == "labels" else crf.relaxed_energy(value)


def _constructors(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    value, number = _arrays(rng), pick(rng, NUMBERS)
    labels = rng.integers(0, 2, (4, 3))
    calls: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("probabilities", lambda: densecrf.DenseCRF.from_probabilities(value)),
        ("logits", lambda: densecrf.DenseCRF.from_logits(value)),
        ("labels", lambda: densecrf.DenseCRF.from_labels(value, 2)),
        ("n_labels", lambda: densecrf.DenseCRF.from_labels(labels, number)),
        ("confidence", lambda: densecrf.DenseCRF.from_labels(labels, 2, confidence=number)),
        ("axis", lambda: densecrf.DenseCRF.from_logits(rng.random((2, 4, 3)), axis=number)),
    )
    return pick(rng, calls)


def _filters(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    lattice = densecrf.operators.LatticeFilter(rng.standard_normal((8, 2)))
    value, number, word = _arrays(rng), pick(rng, NUMBERS), pick(rng, WORDS)
    y = rng.random((8, 2))
    calls: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("values", lambda: lattice.apply(value)),
        ("scores", lambda: lattice.ordered(value)),
        ("weights", lambda: lattice.ordered(y, value)),
        ("levels", lambda: lattice.ordered(y, levels=number)),
        ("order", lambda: lattice.ordered(y, order=word)),
        ("threads", lambda: lattice.apply(y, threads=number)),
        ("features", lambda: densecrf.operators.LatticeFilter(value)),
        ("shape", lambda: densecrf.operators.GridFilter(value, 1.0)),
        ("sigma", lambda: densecrf.operators.GridFilter((3, 4), number)),
    )
    return pick(rng, calls)


CALLS = (_model_array, _model_word, _kernel, _solve_number, _proximal, _solve_word, _init,
         _questions, _constructors, _filters)  # fmt: skip


def draw_hostile(rng: np.random.Generator) -> tuple[str, Callable[[], Any]]:
    """Draw a call and the name of its odd argument."""
    return pick(rng, CALLS)(rng)


def complaint(name: str, error: Exception) -> str:
    """Say what is wrong with an error, or nothing."""
    text = str(error)
    if isinstance(error, ValueError) and text:
        return ""
    if isinstance(error, (TypeError, MemoryError)) and name in text:
        return ""
    return f"{name}: {type(error).__name__}: {text[:300]}"
