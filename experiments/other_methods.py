"""Refinements that are no dense CRFs, or another program's: what else a user could take.

Each function takes the unaries (labels, h, w), the image (h, w, 3) of uint8 and its own settings,
and returns labels (h, w). The packages are imported when a method runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from densecrf.validation import FloatArray

    Labels = npt.NDArray[np.int64]
    Image = npt.NDArray[np.uint8]

__all__ = ["alpha_expansion", "global_smoother", "guided_filter", "pydensecrf"]


def probabilities(unary: FloatArray) -> FloatArray:
    """Return softmax(-unary)."""
    p = np.exp(unary.min(0) - unary)
    return np.asarray(p / p.sum(0), np.float32)


def guided_filter(unary: FloatArray, image: Image, *, radius: int, eps: float) -> Labels:
    """Filter each label's probabilities with the image as guide (He et al. 2010; OpenCV)."""
    import cv2

    guide = cv2.ximgproc.createGuidedFilter(image.astype(np.float32) / 255, radius, eps)
    return np.asarray(np.argmax([guide.filter(p) for p in probabilities(unary)], 0), np.int64)


def global_smoother(unary: FloatArray, image: Image, *, smooth: float, color: float) -> Labels:
    """Smooth each label's probabilities by weighted least squares (Min et al. 2014; OpenCV)."""
    import cv2

    solver = cv2.ximgproc.createFastGlobalSmootherFilter(image, smooth, color)
    return np.asarray(np.argmax([solver.filter(p) for p in probabilities(unary)], 0), np.int64)


def pydensecrf(unary: FloatArray, image: Image, *, iterations: int, model: Any) -> Labels:
    """Run mean field as pydensecrf does it."""
    from pydensecrf import densecrf

    labels, height, width = unary.shape
    crf = densecrf.DenseCRF2D(width, height, labels)
    crf.setUnaryEnergy(np.ascontiguousarray(unary.reshape(labels, -1)))
    crf.addPairwiseGaussian(sxy=model.sigma, compat=model.weight)
    crf.addPairwiseBilateral(
        sxy=model.sigma_xy,
        srgb=model.sigma_color,
        rgbim=np.ascontiguousarray(image),
        compat=model.bilateral_weight,
    )
    q = np.array(crf.inference(iterations))
    return np.asarray(q.argmax(0).reshape(height, width), np.int64)


def alpha_expansion(unary: FloatArray, image: Image, *, smooth: float, sweeps: int = 2) -> Labels:
    """Minimise the contrast-sensitive Potts energy on the grid of eight neighbours.

    Expansion moves by maximum flow (Boykov, Veksler and Zabih 2001; PyMaxflow).
    """
    pairs, weights = _contrast_sensitive(image, smooth)
    count = unary[0].size
    flat = unary.reshape(len(unary), -1).astype(np.float64)
    labels = flat.argmin(0)
    for _ in range(sweeps):
        before = labels
        for label in range(len(unary)):
            labels = _expand(flat, pairs, weights, labels, label, count)
        if (labels == before).all():
            break
    return np.asarray(labels.reshape(unary.shape[1:]), np.int64)


def _contrast_sensitive(image: Image, smooth: float) -> tuple[Any, Any]:
    """Return the pairs of neighbours and their weights, less across edges."""
    height, width = image.shape[:2]
    number = np.arange(height * width).reshape(height, width)
    colors = image.reshape(height * width, -1).astype(np.float64)
    steps = (
        (number[:, :-1], number[:, 1:], 1.0),
        (number[:-1], number[1:], 1.0),
        (number[:-1, :-1], number[1:, 1:], np.sqrt(0.5)),
        (number[:-1, 1:], number[1:, :-1], np.sqrt(0.5)),
    )
    first = np.concatenate([a.ravel() for a, _, _ in steps])
    second = np.concatenate([b.ravel() for _, b, _ in steps])
    near = np.concatenate([np.full(a.size, inverse) for a, _, inverse in steps])
    contrast = ((colors[first] - colors[second]) ** 2).sum(1)
    beta = 1 / max(2 * contrast.mean(), 1e-6)
    return (first, second), smooth * near * np.exp(-beta * contrast)


def _expand(unary: Any, pairs: Any, weights: Any, labels: Labels, label: int, count: int) -> Labels:
    """Return the best labelling in which pixels keep their label or take `label`."""
    import maxflow

    (first, second) = pairs
    # Terms of a pair (Kolmogorov and Zabih 2004): 0 keeps, 1 takes the label.
    keep_keep = weights * (labels[first] != labels[second])
    keep_take = weights * (labels[first] != label)
    take_keep = weights * (labels[second] != label)
    keep = unary[labels, np.arange(count)]
    take = unary[label] + np.bincount(first, take_keep - keep_keep, count)
    take -= np.bincount(second, take_keep, count)
    graph = maxflow.GraphFloat(count, len(first))
    nodes = graph.add_nodes(count)
    low = np.minimum(take, keep)
    # A node on the sink's side takes the label.
    graph.add_grid_tedges(nodes, take - low, keep - low)
    graph.add_edges(first, second, keep_take + take_keep - keep_keep, np.zeros(len(first)))
    graph.maxflow()
    return np.where(graph.get_grid_segments(nodes), label, labels)
