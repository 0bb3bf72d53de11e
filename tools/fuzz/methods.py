"""Methods and options drawn from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from problems import log_uniform, pick

import densecrf

if TYPE_CHECKING:
    import numpy as np

ITERATIONS: dict[str, Any] = {"iterations": (0, 1, 3, 30)}
PROXIMAL: dict[str, Any] = {
    "lam": (1e-6, 0.1, 2.0, 1e4),
    "K": (1, 3, 10),
    "T": (1, 5),
    "levels": (2, 10, 33),
    "order": ("hard", "soft", "adaptive", "literal"),
    "inner": ("projection", "projection", "multiplicative"),
    "inner_steps": (1, 20, 200),
    "tolerance": (0.0, 1e-3),
    "momentum": (True, False),
    "warm": (True, False),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "unary": {},
    "mf5": {"self_term": (True, False)},
    "mf": {**ITERATIONS, "tolerance": (0.0, 1e-3), "self_term": (True, False)},
    "efw": {
        **ITERATIONS,
        "tolerance": (0.0, 1e-3),
        "regularization": (0.0, 1e-6, 0.5, 1e6),
        "step": (None, 1e-3, 0.5, 1.0),
    },
    "qp": {**ITERATIONS, "tolerance": (0.0, 1e-2)},
    "qp-cccp": {},
    "dc-neg": {},
    "sg-lp": {**ITERATIONS},
    "cg-lp": {**ITERATIONS},
    "prox-lp": PROXIMAL,
    "prox-lp-l": PROXIMAL,
    "prox-lp-acc": {**PROXIMAL, "order": ("hard", "soft", "literal")},
    "lp": {
        **ITERATIONS,
        "cells": (0.5, 4.0, 16.0),
        "accuracy": (0.0, 0.8),
        "least_inner": (1, 6),
        "round_every": (1, 2, 7),
        "polish": (0, 1, 3),
        "settle_every": (1, 20),
    },
}
MULTIPLICATIVE_LIMIT = 2.0  # seconds: as many updates as convergence takes can be very many


def draw_call(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Draw a method and the keywords of `solve`."""
    method = str(pick(rng, [*densecrf.METHODS, "lp", "lp"]))
    keywords: dict[str, Any] = {}
    for name, choices in OPTIONS.get(method, {}).items():
        if rng.random() < 0.15:
            keywords[name] = pick(rng, choices)
    if rng.random() < 0.3:
        keywords["gap"] = pick(rng, (0.0, 1e-6, 1e-3, 0.5))
    if rng.random() < 0.3:
        keywords["max_iterations"] = pick(rng, (0, 1, 4, 20))
    if rng.random() < 0.1:
        keywords["init"] = pick(rng, ("unary", "mf5", "qp", "dc-neg"))
    if rng.random() < 0.05 or keywords.get("inner") == "multiplicative":
        keywords["time_limit"] = pick(rng, (0.0, log_uniform(rng, -4, -1), MULTIPLICATIVE_LIMIT))
    keywords.setdefault("max_iterations", 40)
    return method, keywords
