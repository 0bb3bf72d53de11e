"""Solving models of NumPy arrays on a torch device, within its memory."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from densecrf.deadline import deadline
from densecrf.operators.torch.lattice import on_device
from densecrf.operators.torch.pairwise import TensorPairwise
from densecrf.solvers.minimisation import minimise
from densecrf.torch.problem import torch_problem
from densecrf.torch.warm import first_use
from densecrf.validation import ArgumentError, mention, outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from densecrf.model.crf import DenseCRF
    from densecrf.problem.problem import Problem
    from densecrf.solvers.loop import Limits, Outcome

_WORKSPACES = (None, 1 << 28, 1 << 24)  # bytes; None: the filters' default

Answer = TypeVar("Answer")


def minimise_on(
    crf: DenseCRF,
    device: Any,
    method: str,
    limits: Limits,
    init: Any = None,
    options: dict[str, Any] | None = None,
) -> tuple[Problem[Tensor], Outcome]:
    """Bring a model to a device and minimise its energy there.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    device : str or torch.device
        Where to.
    method, limits, init, options
        As for `densecrf.solvers.minimisation.minimise`.
    """
    where = checked_device(device)
    first_use(where, crf.n_labels)

    def attempt(workspace: int | None) -> tuple[Problem[Tensor], Outcome]:
        with deadline(limits.deadline):
            problem: Any = problem_on(crf, where, workspace)
        return problem, minimise(problem, method, limits, init, options)

    with torch.no_grad(), on_device(where):
        return within_memory(attempt, f"{crf.n} pixels with {crf.n_labels} labels")


def problem_on(
    crf: DenseCRF, device: torch.device, workspace: int | None = None
) -> Problem[Tensor]:
    """Bring a model on NumPy arrays to a device.

    Parameters
    ----------
    crf : DenseCRF
        The model, with filter "lattice" (or "auto").
    device : torch.device
        Where to.
    workspace : int, optional
        Bytes of scratch memory for the filters.
    """
    if crf.filter not in ("auto", "lattice"):
        raise ArgumentError(
            "device",
            str(device),
            f'works with the lattice, not with filter={crf.filter!r}; use filter="lattice"',
        )

    def move(array: Any) -> Tensor:
        return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)

    unary = move(crf.unary)
    pairwise = TensorPairwise(
        [move(kernel.features(crf.shape)) for kernel in crf.kernels],
        [kernel.weight for kernel in crf.kernels],
        unary,
        normalized=crf.normalization == "symmetric",
        order="forward" if crf.blur == "forward" else "symmetric",
        workspace=workspace,
    )
    costs = None if crf.compatibility is None else move(crf.compatibility)
    return torch_problem(unary, pairwise, costs, crf.tree, crf)


def checked_device(device: Any) -> torch.device:
    """Return the device, or say why there is none: nothing falls back to another in silence."""
    try:
        where = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError("device", device, str(error)) from error
    if where.type == "cuda":
        if not torch.cuda.is_available():
            remedy = (
                f"this PyTorch sees no CUDA device; use {mention('device', 'cpu')}, or leave it "
            )
            raise ArgumentError("device", device, remedy + "out for the compiled core")
        if (where.index or 0) >= torch.cuda.device_count():
            found = f"there are {torch.cuda.device_count()} CUDA devices"
            raise ArgumentError("device", device, found)
    return where


def within_memory(attempt: Callable[[int | None], Answer], what: str) -> Answer:
    """Call `attempt(workspace)`, again with less workspace where the device's memory runs out.

    Parameters
    ----------
    attempt : callable
        Takes the bytes of scratch memory that filters may use, None for their default.
    what : str
        The problem, for the message.

    Raises
    ------
    MemoryError
        If even the smallest workspace is too much.
    """
    message = ""
    for place, workspace in enumerate(_WORKSPACES):
        try:
            return attempt(workspace)
        except torch.cuda.OutOfMemoryError as error:
            message = str(error).split("\n", maxsplit=1)[0]
        torch.cuda.empty_cache()
        if place + 1 < len(_WORKSPACES):
            warnings.warn(
                f"out of device memory for {what}; trying again with a smaller workspace",
                stacklevel=outside(),
            )
    raise MemoryError(
        f"{what} do not fit into the device's memory even with the smallest workspace; use smaller "
        f"images or batches, or tiles ({message})"
    )
