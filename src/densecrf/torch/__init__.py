"""Dense CRFs on torch tensors, on CPU and GPU; needs no compiled core."""

import warnings
from typing import Any

from densecrf.operators.torch.lattice import Lattice, apply_sum, ordered_sum
from densecrf.torch.batches import BatchResult
from densecrf.torch.layer import DenseCRF
from densecrf.torch.loss import DenseCRFLoss
from densecrf.torch.problem import torch_problem
from densecrf.torch.transform import DenseCRFd
from densecrf.torch.warm import warm_up

__all__ = [
    "BatchResult",
    "DenseCRF",
    "DenseCRFLoss",
    "DenseCRFd",
    "Lattice",
    "apply_sum",
    "ordered_sum",
    "torch_problem",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    """Return a name of version 0.1, with a warning."""
    if name == "TorchProblem":
        warnings.warn("TorchProblem is now torch_problem", DeprecationWarning, stacklevel=2)
        return torch_problem
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
