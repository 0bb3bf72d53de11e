"""The module ``denseCRF3D`` of SimpleCRF: mean field on a volume of one or several modalities."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from densecrf.drop_in.pydensecrf.densecrf import DenseCRF
from densecrf.drop_in.pydensecrf.utils import create_pairwise_bilateral, create_pairwise_gaussian
from densecrf.drop_in.simplecrf.denseCRF import Labels, labels_of
from densecrf.validation import ArgumentError, as_real_array, warn

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


def densecrf3d(I: Any, P: Any, param: Mapping[str, Any]) -> Labels:
    """Return the labels (depth, height, width) after mean-field iterations.

    Parameters
    ----------
    I : array_like, (depth, height, width) or (depth, height, width, modalities)
        Volume, intensities from 0 to 255.
    P : array_like, (depth, height, width, labels)
        Probabilities, clipped to [0.01, 0.99] as SimpleCRF does.
    param : mapping
        ``MaxIterations``; ``PosW`` and ``PosRStd``, ``PosCStd``, ``PosZStd``: weight and standard
        deviations of the spatial kernel along the last, the middle and the first axis;
        ``BilateralW``, ``BilateralRStd``, ``BilateralCStd``, ``BilateralZStd`` and
        ``BilateralModsStds`` (one for each modality) of the bilateral one. ``ModalityNum`` is
        optional.

    Warns
    -----
    ArgumentWarning
        If the depth is not the width: SimpleCRF, and this function, then use positions with the
        two exchanged.

    Examples
    --------
    >>> volume = np.zeros((4, 3, 4), np.uint8)
    >>> volume[:, :, 2:] = 200
    >>> p = np.where(volume[..., None] < 100, (0.9, 0.1), (0.1, 0.9))
    >>> param = dict.fromkeys(PARAMETERS, 2.0) | {"BilateralModsStds": (13.0,)}
    >>> densecrf3d(volume, p, param)[0, 0]
    array([0, 0, 1, 1], dtype=int8)
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
    shape, labels = p.shape[:3], p.shape[3]
    if shape[0] != shape[2]:
        warn(
            "I",
            f"shape {shape}: depth and width differ. SimpleCRF, and this function, then use "
            "positions with the two exchanged; densecrf.refine and densecrf.DenseCRF do not",
        )
    counted = shape[::-1]
    near, similar = (
        tuple(float(param[f"{kind}{axis}Std"]) for axis in "ZCR") for kind in ("Pos", "Bilateral")
    )
    smooth = create_pairwise_gaussian(near, counted)
    volume = volume.reshape(*counted, -1)
    alike = create_pairwise_bilateral(similar, param["BilateralModsStds"], volume, chdim=3)
    crf = DenseCRF(int(np.prod(shape)), labels)
    # The order of the features is that of the lattice's blurs.
    crf.addPairwiseEnergy(smooth[::-1], float(param["PosW"]))
    crf.addPairwiseEnergy(np.concatenate([alike[2::-1], alike[3:]]), float(param["BilateralW"]))
    return labels_of(crf, p, int(param["MaxIterations"]))
