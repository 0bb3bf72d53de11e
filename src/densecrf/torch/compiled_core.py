"""CPU tensors that need no gradient: the same problem on NumPy arrays, by the compiled core.

The core is tens of times faster on a CPU than torch's operations. Memory is shared, not copied.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import Bilateral, Spatial
from densecrf.native import core
from densecrf.problem.problem import Problem, problem_of
from densecrf.validation import outside

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from densecrf.model.compatibility import LabelTree
    from densecrf.model.kernels import Kernel

_NUMPY = (torch.uint8, torch.float32, torch.float64)


def takes(logits: Tensor, image: Tensor, parameters: Iterable[Tensor | None]) -> bool:
    """Return whether the core solves for these tensors: on the CPU, float32, without gradients.

    Float64 is worked on as such, which the core does not.
    """
    if logits.device.type != "cpu" or logits.dtype == torch.float64:
        return False
    if torch.is_grad_enabled() and any(
        each is not None and each.requires_grad for each in (logits, image, *parameters)
    ):
        return False
    return _there()


def problem(
    unary: Tensor,
    kernels: Sequence[Kernel],
    normalization: str,
    compatibility: LabelTree | Tensor | None,
) -> Problem[npt.NDArray[Any]]:
    """Return the problem of one item on NumPy arrays that share the tensors' memory.

    Parameters
    ----------
    unary : Tensor
        (labels, *spatial) finite energies, not used elsewhere.
    kernels, normalization, compatibility
        As for `densecrf.DenseCRF`; costs may be a tensor.
    """
    energies = unary.detach().numpy()
    costs: Any = compatibility
    if isinstance(costs, torch.Tensor):
        costs = costs.detach().numpy()
    crf = DenseCRF.from_checked(energies, kernels, normalization, compatibility=costs)
    return problem_of(crf, torch.get_num_threads())


def kernel(
    image: Tensor, weight: Tensor, sigma: Tensor, sigma_color: Tensor | None
) -> Spatial | Bilateral:
    """Return the smoothness kernel, or the appearance kernel of one image (channels, *spatial)."""
    if sigma_color is None:
        return Spatial(sigma.tolist(), weight.item())
    pixels = image.detach() if image.dtype in _NUMPY else image.detach().float()
    colors = sigma_color.tolist()
    return Bilateral(pixels.movedim(0, -1).numpy(), sigma.tolist(), colors, weight.item())


@cache
def _there() -> bool:
    """Return whether there is a compiled core; warn once where there is none."""
    try:
        core()
    except ImportError as error:
        warnings.warn(f"CPU tensors are solved slowly, by torch: {error}", stacklevel=outside())
        return False
    return True
