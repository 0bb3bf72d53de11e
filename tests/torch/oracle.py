"""The permutohedral filter as dense matrices, written for clarity: the oracle of the tests."""

import itertools

import numpy as np


def corners(features):
    """Corner keys (all d+1 coordinates) and barycentric weights of each feature point."""
    d = features.shape[1]
    keys, weights = [], []
    scale = np.sqrt(2 / 3) * (d + 1) / np.sqrt((np.arange(d) + 1.0) * (np.arange(d) + 2.0))
    for f in features.astype(np.float64):
        x = np.zeros(d + 1)
        for i in range(d):
            x[: i + 1] += f[i] * scale[i]
            x[i + 1] -= (i + 1) * f[i] * scale[i]
        # The remainder-0 corner is the one whose differences have spread at most d+1.
        zero = np.floor(x / (d + 1) + 0.5) * (d + 1)
        while zero.sum() > 0:
            zero[np.lexsort((-np.arange(d + 1), x - zero))[0]] -= d + 1
        while zero.sum() < 0:
            zero[np.lexsort((np.arange(d + 1), zero - x))[0]] += d + 1
        delta = x - zero
        order = np.argsort(-delta, kind="stable")
        corner, own, own_weights = zero.copy(), [], []
        sorted_delta = delta[order] / (d + 1)
        for k in range(d + 1):
            own.append(tuple(int(c) for c in corner))
            if k == 0:
                own_weights.append(1 - sorted_delta[0] + sorted_delta[d])
            else:
                own_weights.append(sorted_delta[d - k] - sorted_delta[d - k + 1])
            # Next corner: +1 everywhere, and -(d+1) along the axis of the smallest difference left.
            corner = corner + 1
            corner[order[d - k]] -= d + 1
        keys.append(own)
        weights.append(own_weights)
    return keys, np.maximum(np.array(weights), 0)


def matrices(features, items=1):
    """Splat matrix (vertices, n) and the d+1 blur matrices, items kept apart."""
    n, d = features.shape
    keys, weights = corners(features)
    tagged = [[(a // (n // items), *key) for key in own] for a, own in enumerate(keys)]
    index = {key: v for v, key in enumerate(sorted(set(itertools.chain(*tagged))))}
    splat = np.zeros((len(index), n))
    for a in range(n):
        for key, weight in zip(tagged[a], weights[a], strict=True):
            splat[index[key], a] += weight
    blurs = []
    for axis in range(d + 1):
        blur = np.eye(len(index))
        for key, v in index.items():
            moved = [key[0], *(c - 1 for c in key[1:])]
            moved[axis + 1] += d + 1
            if tuple(moved) in index:
                blur[v, index[tuple(moved)]] = blur[index[tuple(moved)], v] = 0.5
        blurs.append(blur)
    return splat, blurs


def kernel(features, order="symmetric", items=1):
    """The (n, n) matrix of the filter."""
    splat, blurs = matrices(features, items)
    forward = np.eye(len(splat))
    for blur in blurs:
        forward = blur @ forward
    middle = (forward + forward.T) / 2 if order == "symmetric" else forward
    return splat.T @ middle @ splat / (1 + 2.0 ** -features.shape[1])


def ordered(matrix, scores, levels, soft):
    """Σ_b k_ab s(t_a, t_b) by weights to levels, the definition rather than the algorithm."""
    t = np.clip(scores, 0, 1) * (levels - 1)
    if not soft:
        t = np.floor(t)
    h = np.arange(levels)
    hats = np.clip(1 - np.abs(t[..., None] - h), 0, None)  # (labels, n, levels)
    sign = np.sign(h[:, None] - h)
    pairs = np.einsum("lah,hg,lbg->lab", hats, sign, hats)
    return np.einsum("ab,lab->la", matrix, pairs)
