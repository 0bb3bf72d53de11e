"""Problems of tensors, and models on a device: by torch, Triton or the compiled core."""

from __future__ import annotations

import warnings
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch

from densecrf.deadline import deadline
from densecrf.model.crf import DenseCRF
from densecrf.model.kernels import Bilateral, Kernel, Spatial
from densecrf.native import core
from densecrf.operators.torch.lattice import on_device
from densecrf.operators.torch.pairwise import TensorPairwise, TorchOperator
from densecrf.problem.label_costs import LabelCosts
from densecrf.problem.problem import Problem, problem_of
from densecrf.solvers.minimisation import minimise
from densecrf.steps.torch import TorchSteps
from densecrf.torch.warm import first_use
from densecrf.validation import ArgumentError, mention, outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt
    from torch import Tensor

    from densecrf.model.compatibility import LabelTree
    from densecrf.solvers.loop import Limits, Outcome
    from densecrf.steps.triton import TritonBatch
    from densecrf.torch.queue import DeviceQueue, Place

__all__ = [
    "by_triton",
    "checked_device",
    "computed",
    "core_problem",
    "core_takes",
    "joined",
    "minimise_on",
    "problem_on",
    "together",
    "torch_problem",
]

_WORKSPACES = (None, 1 << 28, 1 << 24)  # bytes; None: the filters' default
_NUMPY = (torch.uint8, torch.float32, torch.float64)

Answer = TypeVar("Answer")

#: What minimises the problems of this thread on a device, together with others.
together: ContextVar[DeviceQueue | None] = ContextVar("together", default=None)


def torch_problem(
    unary: Tensor,
    pairwise: TensorPairwise,
    compatibility: Tensor | None = None,
    tree: LabelTree | None = None,
    crf: DenseCRF | None = None,
) -> Problem[Tensor]:
    """Return the problem of tensors on their device, with Triton's kernels if possible.

    Parameters
    ----------
    unary : Tensor
        (labels, n) energies, float32 or float64.
    pairwise : TensorPairwise
        The matrix K over the same pixels.
    compatibility : Tensor, optional
        (labels, labels) costs; Potts by default.
    tree : LabelTree, optional
        The tree whose metric `compatibility` is.
    crf : DenseCRF, optional
        The model on NumPy arrays that this one came from.

    Examples
    --------
    >>> unary = torch.tensor([[0.0, 0.6, 0.0], [1.0, 0.5, 1.0]])
    >>> features = torch.arange(3.0).reshape(3, 1)
    >>> problem = torch_problem(unary, TensorPairwise([features], [1.0], unary))
    >>> round(problem.energy(torch.tensor([0, 0, 0])), 3)
    0.6
    """
    steps = TorchSteps(unary)
    costs = LabelCosts.of(len(unary), steps, compatibility, tree)
    problem = Problem(unary, TorchOperator(pairwise), steps, costs, crf)
    if not by_triton(problem):
        return problem
    from densecrf.steps.triton import TritonBatch

    return joined(TritonBatch(pairwise), 0, problem)


def joined(batch: TritonBatch, number: int, problem: Problem[Tensor]) -> Problem[Tensor]:
    """Return the problem of an item that enters a batch."""
    entering = cast("TorchOperator", problem.pairwise).pairwise
    own = batch.enter(number, problem.unary, entering)
    return Problem(problem.unary, *own, problem.costs, problem.crf, problem.calls)


def by_triton(problem: Any) -> bool:
    """Return whether Triton's kernels serve a problem."""
    operator = problem.pairwise
    merged = operator.pairwise.merged if isinstance(operator, TorchOperator) else None
    return merged is not None and merged.triton


def core_takes(logits: Tensor, image: Tensor, parameters: Iterable[Tensor | None]) -> bool:
    """Return whether the compiled core, tens of times faster than torch, can solve these tensors.

    They must be on the CPU and need no gradient; the core does not compute in float64.
    """
    if logits.device.type != "cpu" or logits.dtype == torch.float64:
        return False
    given = (logits, image, *parameters)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given):
        return False
    return _has_core()


@cache
def _has_core() -> bool:
    """Return whether the compiled core is installed; warn once if not."""
    try:
        core()
    except ImportError as error:
        warnings.warn(f"CPU tensors are solved slowly, by torch: {error}", stacklevel=outside())
        return False
    return True


def core_problem(
    unary: Tensor,
    image: Tensor,
    kernels: Iterable[tuple[Tensor, Tensor, Tensor | None]],
    normalization: str,
    compatibility: LabelTree | Tensor | None,
) -> Problem[npt.NDArray[Any]]:
    """Return the problem of one item on NumPy arrays that share the tensors' memory.

    Parameters
    ----------
    unary : Tensor
        (labels, *spatial) finite energies, not used elsewhere.
    image : Tensor
        (channels, *spatial).
    kernels : iterable of (weight, deviation of positions, deviation of colours or None)
        The appearance kernel, or without colours the smoothness kernel.
    normalization, compatibility
        As for `densecrf.DenseCRF`; costs may be a tensor.
    """
    pixels = image.detach() if image.dtype in _NUMPY else image.detach().float()
    colours = pixels.movedim(0, -1).numpy()
    declared: list[Kernel] = []
    for weight, sigma, color in kernels:
        if color is None:
            declared.append(Spatial(sigma.tolist(), weight.item()))
        else:
            declared.append(Bilateral(colours, sigma.tolist(), color.tolist(), weight.item()))
    costs: Any = compatibility
    if isinstance(costs, torch.Tensor):
        costs = costs.detach().numpy()
    energies = unary.detach().numpy()
    crf = DenseCRF.from_checked(energies, declared, normalization, compatibility=costs)
    return problem_of(crf, torch.get_num_threads())


def minimise_on(
    crf: DenseCRF,
    device: Any,
    method: str,
    limits: Limits,
    init: Any = None,
    options: dict[str, Any] | None = None,
) -> tuple[Problem[Tensor], Outcome[Tensor]]:
    """Copy a model to a device and minimise its energy there; see `minimise`."""
    where, queue = checked_device(device), together.get()
    if queue is None:
        return _minimised(crf, where, method, limits, init, options)
    found: tuple[Problem[Tensor], Outcome[Tensor]]
    found = queue.call(partial(_minimised, crf, where, method, limits, init, options))
    return found


def _minimised(
    crf: DenseCRF,
    where: torch.device,
    method: str,
    limits: Limits,
    init: Any,
    options: dict[str, Any] | None,
    place: Place | None = None,
) -> tuple[Problem[Tensor], Outcome[Tensor]]:
    def attempt(workspace: int | None) -> tuple[Problem[Tensor], Outcome[Tensor]]:
        if place is not None:
            place.make_room(crf.n_labels * crf.n)
        with deadline(limits.deadline):
            problem: Any = problem_on(crf, where, workspace)
        run: Any = minimise if place is None else place.minimise
        return problem, run(problem, method, limits, init, options)

    with torch.no_grad():
        what = f"{crf.n} pixels with {crf.n_labels} labels"
        return computed(attempt, where, crf.n_labels, what)


def problem_on(
    crf: DenseCRF, device: torch.device, workspace: int | None = None
) -> Problem[Tensor]:
    """Copy a model with filter "lattice" (or "auto") to a device.

    `workspace` limits the scratch memory of the filters, in bytes.
    """
    if crf.filter not in ("auto", "lattice"):
        remedy = f'works with the lattice, not with filter={crf.filter!r}; use filter="lattice"'
        raise ArgumentError("device", str(device), remedy)

    def move(array: Any) -> Tensor:
        return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)

    unary = move(crf.unary)
    pairwise = TensorPairwise(
        [move(kernel.features(crf.shape)) for kernel in crf.weighty_kernels],
        [kernel.weight for kernel in crf.weighty_kernels],
        unary,
        normalized=crf.normalization == "symmetric",
        order="forward" if crf.blur == "forward" else "symmetric",
        workspace=workspace,
    )
    costs = None if crf.compatibility is None else move(crf.compatibility)
    return torch_problem(unary, pairwise, costs, crf.tree, crf)


def checked_device(device: Any) -> torch.device:
    """Return the device, or raise an error: nothing falls back to another device silently."""
    try:
        where = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError("device", device, str(error)) from error
    if where.type == "cuda":
        if not torch.cuda.is_available():
            remedy = f"this PyTorch sees no CUDA device; use {mention('device', 'cpu')}, or leave "
            raise ArgumentError("device", device, remedy + "it out for the compiled core")
        if (where.index or 0) >= torch.cuda.device_count():
            found = f"there are {torch.cuda.device_count()} CUDA devices"
            raise ArgumentError("device", device, found)
    return where


def computed(
    attempt: Callable[[int | None], Answer], device: torch.device, labels: int, what: str
) -> Answer:
    """Return `attempt(workspace)` on a device, without autocast.

    If the device's memory runs out, it is called again with a smaller workspace, the filters' limit
    on scratch memory (None: their default). `what` names the problem in the final MemoryError.
    """
    first_use(device, labels)
    message = ""
    with torch.autocast(device.type, enabled=False), on_device(device):
        for place, workspace in enumerate(_WORKSPACES):
            try:
                return attempt(workspace)
            except torch.cuda.OutOfMemoryError as error:
                message = str(error).split("\n", maxsplit=1)[0]
            torch.cuda.empty_cache()
            if place + 1 < len(_WORKSPACES):
                again = f"out of device memory for {what}; trying again with a smaller workspace"
                warnings.warn(again, stacklevel=outside())
    raise MemoryError(
        f"{what} do not fit in the device's memory, even with the smallest workspace; use smaller "
        f"images or batches, or tiles ({message})"
    )
