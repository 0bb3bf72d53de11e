"""Distances from strokes along paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from densecrf.model import scribbles
from densecrf.model.scribbles import geodesics
from densecrf.native import core


def by_dijkstra(colors, drawn, label):
    """Return the shortest paths over neighbours by sides and corners."""
    shape = drawn.shape
    step = scribbles.ACROSS / drawn.size ** (1 / drawn.ndim)
    starts, ends, costs = [], [], []
    for a in np.ndindex(*shape):
        for offset in itertools.product((-1, 0, 1), repeat=len(shape)):
            b = tuple(np.add(a, offset))
            if any(offset) and all(0 <= x < n for x, n in zip(b, shape, strict=True)):
                starts.append(np.ravel_multi_index(a, shape))
                ends.append(np.ravel_multi_index(b, shape))
                way, color = np.linalg.norm(offset), np.linalg.norm(colors[a] - colors[b])
                costs.append(np.hypot(step * way, color))
    graph = coo_matrix((costs, (starts, ends)), shape=(drawn.size, drawn.size)).tocsr()
    seeds = np.flatnonzero(drawn == label)
    return dijkstra(graph, indices=seeds, min_only=True).reshape(shape)


@pytest.mark.parametrize("shape", [(7,), (9, 8), (1, 6), (3, 4, 5)])
def test_distances_are_those_of_dijkstra(shape, monkeypatch):
    monkeypatch.setattr(scribbles, "ROUNDS", 20)
    rng = np.random.default_rng(0)
    colors = rng.uniform(0, 255, (*shape, 3))
    drawn = np.full(shape, -1)
    drawn.flat[[0, drawn.size // 2]] = 0, 1
    found = geodesics(colors, drawn, 2)
    for label in (0, 1):
        np.testing.assert_allclose(found[label], by_dijkstra(colors, drawn, label), rtol=1e-4)


def test_few_rounds_never_shorten_too_much():
    rng = np.random.default_rng(1)
    colors = rng.uniform(0, 255, (12, 11, 3))
    drawn = np.full((12, 11), -1)
    drawn[5, 5] = 0
    exact = by_dijkstra(colors, drawn, 0)
    found = geodesics(colors, drawn, 1)[0]
    assert (found >= exact * (1 - 1e-5)).all()
    assert (found <= exact * 1.1).all()


def test_the_core_refuses_arrays_of_another_size():
    with pytest.raises(ValueError, match="number of pixels"):
        core().shorten_distances(
            np.zeros((1, 6), np.float32),
            colors=np.zeros((5, 3), np.float32),
            shape=(1, 2, 3),
            step=1.0,
            rounds=1,
            threads=1,
        )
