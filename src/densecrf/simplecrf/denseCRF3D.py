"""The module ``denseCRF3D`` of SimpleCRF: mean field on a volume of one or several modalities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.pydensecrf.densecrf import DenseCRF
from densecrf.pydensecrf.utils import (
    create_pairwise_bilateral,
    create_pairwise_gaussian,
    unary_from_softmax,
)
from densecrf.validation import ArgumentError, as_real_array

__all__ = ["densecrf3d"]

PARAMETERS = (
    "MaxIterations",
    "PosW",
    "PosRStd",
    "PosCStd",
    "PosZStd",
    "BilateralW",
    "BilateralRStd",
    "BilateralCStd",
    "BilateralZStd",
    "BilateralModsStds",
)


def densecrf3d(I: Any, P: Any, param: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    """Return the labels (depth, height, width) after some mean-field iterations.

    Parameters
    ----------
    I : array_like, (depth, height, width) or (depth, height, width, modalities)
        Volume, intensities from 0 to 255.
    P : array_like, (depth, height, width, labels)
        Probabilities.
    param : mapping
        ``MaxIterations``; ``PosW`` and ``PosRStd``, ``PosCStd``, ``PosZStd``: weight and standard
        deviations along rows, columns and slices of the spatial kernel; ``BilateralW``,
        ``BilateralRStd``, ``BilateralCStd``, ``BilateralZStd`` and ``BilateralModsStds`` (one for
        each modality) of the bilateral one. ``ModalityNum`` is optional.

    Examples
    --------
    >>> volume = np.zeros((2, 4, 6), np.uint8)
    >>> volume[:, :, 3:] = 200
    >>> p = np.where(volume[..., None] < 100, (0.9, 0.1), (0.1, 0.9))
    >>> param = dict.fromkeys(PARAMETERS, 2.0) | {"BilateralModsStds": (13.0,)}
    >>> densecrf3d(volume, p, param)[0, 0]
    array([0, 0, 0, 1, 1, 1], dtype=uint8)
    """
    volume, p = as_real_array("I", I), as_real_array("P", P)
    if volume.ndim == 3:
        volume = volume[..., None]
    if volume.ndim != 4 or p.ndim != 4 or p.shape[:3] != volume.shape[:3]:
        raise ArgumentError(
            "P",
            ...,
            f"shape {p.shape} for a volume of shape {volume.shape}; give "
            "(depth, height, width, labels)",
        )
    if missing := [name for name in PARAMETERS if name not in param]:
        raise ArgumentError("param", ..., f"lacks {', '.join(missing)}")
    if param.get("ModalityNum", volume.shape[3]) != volume.shape[3]:
        raise ArgumentError(
            "param", ..., f"ModalityNum={param['ModalityNum']!r} for {volume.shape[3]} modalities"
        )
    near, similar = (
        tuple(float(param[f"{kind}{axis}Std"]) for axis in "ZRC") for kind in ("Pos", "Bilateral")
    )
    shape, labels = p.shape[:3], p.shape[3]
    crf = DenseCRF(int(np.prod(shape)), labels)
    crf.setUnaryEnergy(unary_from_softmax(np.moveaxis(p, -1, 0)))
    crf.addPairwiseEnergy(create_pairwise_gaussian(near, shape), float(param["PosW"]))
    features = create_pairwise_bilateral(similar, param["BilateralModsStds"], volume, chdim=3)
    crf.addPairwiseEnergy(features, float(param["BilateralW"]))
    q = crf.inference(int(param["MaxIterations"]))
    return np.asarray(q.argmax(0).reshape(shape), np.uint8)
