"""One plain filter call on 21 channels against pydensecrf's mean-field step."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import (
    LABELS,
    Section,
    median_seconds,
    milliseconds,
    standard_features,
    times,
)
from densecrf.operators import LatticeFilter

TEXT = """
Milliseconds for one filter call on 21 channels, lattice built beforehand, one thread, CPU time,
medians of seven; and the construction of the lattice. pydensecrf's filter cannot be called alone:
*its step* is one mean-field step with this kernel, *less the rest* subtracts a step without
kernels. The symmetric blur does twice the work of pydensecrf's forward one.
"""
COLUMNS = (
    "n",
    "kernel",
    "lattice",
    "apply, symmetric",
    "apply, forward",
    "its step",
    "less the rest",
    "its step / symmetric",
    "less the rest / forward",
)


def run(scale: str) -> Section:
    """Measure both sizes (one, without the finest kernel, where scale is "small")."""
    rows = [
        _row(n, name, features)
        for n in ((68_160,) if scale == "small" else (68_160, 187_500))
        for name, features in standard_features(n, fine=scale == "full")
    ]
    return Section("Plain filter", TEXT, COLUMNS, rows)


def _row(n: int, name: str, features: np.ndarray) -> tuple[Any, ...]:
    y = np.random.default_rng(0).dirichlet(np.ones(LABELS), n).T.astype(np.float32)
    y = np.ascontiguousarray(y)
    out = np.empty_like(y)
    build = median_seconds(lambda: LatticeFilter(features, threads=1), repeat=7)
    both, one = LatticeFilter(features, "symmetric"), LatticeFilter(features, "forward")
    symmetric = median_seconds(lambda: both.apply_planes(y, out, threads=1), repeat=7)
    forward = median_seconds(lambda: one.apply_planes(y, out, threads=1), repeat=7)
    step = _peer_step(-np.log(y + np.float32(1e-6)), features)
    rest = _peer_step(-np.log(y + np.float32(1e-6)), None)
    ours = (milliseconds(build), milliseconds(symmetric), milliseconds(forward))
    if step is None or rest is None:
        return (f"{n:,}", name, *ours, "not installed", "", "", "")
    peer = (milliseconds(step), milliseconds(step - rest))
    ratios = (times(step / symmetric), times((step - rest) / forward))
    return (f"{n:,}", name, *ours, *peer, *ratios)


def _peer_step(unary: np.ndarray, features: np.ndarray | None) -> float | None:
    """Return the time of pydensecrf's step, or None where it is not installed."""
    try:
        import pydensecrf.densecrf as peer
    except ImportError:
        return None
    crf = peer.DenseCRF(unary.shape[1], LABELS)
    crf.setUnaryEnergy(np.ascontiguousarray(unary))
    if features is not None:
        points = np.ascontiguousarray(features.T)
        crf.addPairwiseEnergy(points, compat=1, normalization=peer.NO_NORMALIZATION)
    q, first, second = crf.startInference()
    return median_seconds(lambda: crf.stepInference(q, first, second), repeat=7)
