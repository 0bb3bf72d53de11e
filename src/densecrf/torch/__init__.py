"""Dense CRFs on torch tensors, on CPU and GPU; needs no compiled core."""

from densecrf.torch.batches import BatchResult
from densecrf.torch.lattice import Lattice, apply_sum, ordered_sum
from densecrf.torch.loss import DenseCRFLoss
from densecrf.torch.module import DenseCRF
from densecrf.torch.problem import TorchProblem
from densecrf.torch.transform import DenseCRFd
from densecrf.torch.warm import warm_up

__all__ = [
    "BatchResult",
    "DenseCRF",
    "DenseCRFLoss",
    "DenseCRFd",
    "Lattice",
    "TorchProblem",
    "apply_sum",
    "ordered_sum",
    "warm_up",
]
