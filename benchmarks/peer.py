"""pydensecrf, where it is installed (``pip install pydensecrf2``)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["installed", "mean_field"]


def installed() -> bool:
    """Return whether pydensecrf can be imported."""
    try:
        import pydensecrf.densecrf  # noqa: F401
    except ImportError:
        return False
    return True


def mean_field(
    unary: np.ndarray, image: np.ndarray, parameters: tuple[float, ...], iterations: int = 5
) -> np.ndarray:
    """Return the marginals (labels, n) that it gives, its model's construction included.

    `parameters` are the spatial kernel's sigma and weight, then the bilateral one's two sigmas and
    weight.
    """
    import pydensecrf.densecrf as peer

    return run_facade(peer, unary, image, parameters, iterations)


def run_facade(
    module: Any,
    unary: np.ndarray,
    image: np.ndarray,
    parameters: tuple[float, ...],
    iterations: int,
) -> np.ndarray:
    """Return what a module with pydensecrf's interface gives."""
    sigma, weight, xy, color, bilateral = parameters
    height, width = image.shape[:2]
    crf = module.DenseCRF2D(width, height, len(unary))
    crf.setUnaryEnergy(np.ascontiguousarray(unary.reshape(len(unary), -1)))
    crf.addPairwiseGaussian(sigma, weight)
    crf.addPairwiseBilateral(xy, color, np.ascontiguousarray(image), bilateral)
    return np.array(crf.inference(iterations))
