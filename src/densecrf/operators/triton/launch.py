"""Launches of Triton kernels with little work on the host.

A filter call is some ten launches of a few microseconds each, so that Triton's own dispatch, which
inspects every argument at every launch, would cost more than the kernels. Compiled kernels are
stored here by what their code depends on, and launched directly, with addresses in the place of
tensors. That takes private functions of Triton and torch: where they are not the known ones, every
launch is Triton's public one, with the same result.

Preparing the arguments of the launches takes longer than the kernels do, too: `Plans` keep the
prepared launches of an operation, and its scratch memory, for the next ones of the same kind, which
differ in a few tensors only.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from densecrf.operators.torch.dispatch import interpreted, triton_version

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from torch import Tensor

# The last version of Triton whose compiled kernels are known to be run by run(x, y, z, stream,
# function, packed_metadata, launch_metadata, enter_hook, exit_hook, *arguments, *constants).
LAST_DIRECT = (3, 9)
KNOWN_LAUNCHER = (3, 6)  # whose inner launcher is known, too

_compiled: dict[tuple[Any, ...], Any] = {}
_local = threading.local()


@cache
def direct() -> bool:
    """Whether kernels are launched directly: the private functions are the known ones."""
    if interpreted() or not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        return False
    if triton_version() > LAST_DIRECT:
        return False
    kernel = getattr(import_module("triton.compiler"), "CompiledKernel", None)
    return hasattr(kernel, "run")


def _runner(compiled: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what runs a compiled kernel, and its arguments between stream and tensors."""
    run, hooks = compiled.run, (compiled.packed_metadata, None, None, None)
    if triton_version() != KNOWN_LAUNCHER or not hasattr(run, "launch_pdl"):
        return run, (compiled.function, *hooks)
    if run.global_scratch_size or run.profile_scratch_size:
        return run, (compiled.function, *hooks)
    scratch = (None, None)  # what `run` itself would give, at half the cost of a launch
    cooperative, dependent = run.launch_cooperative_grid, run.launch_pdl
    return run.launch, (compiled.function, cooperative, dependent, *scratch, *hooks)


class Launch(NamedTuple):
    """A launch that can be repeated: see `repeat`.

    `arguments` are numbers, and what `handle` makes of tensors.
    """

    kernel: Any
    grid: tuple[int, int, int]
    arguments: list[Any]
    options: Mapping[str, Any]
    values: tuple[Any, ...]


class Record(NamedTuple):
    """Launches that were made, and the tensors that they worked on."""

    launches: list[Launch]
    tensors: list[Tensor]


def handle(tensor: Tensor) -> Any:
    """Return what stands for a tensor in a launch: its address, or itself in a public launch."""
    return tensor.data_ptr() if direct() else tensor


@contextmanager
def recorded() -> Iterator[Record]:
    """Collect the launches that this thread makes meanwhile."""
    _local.record = Record([], [])
    try:
        yield _local.record
    finally:
        _local.record = None


def repeat(launches: Sequence[Launch], device: torch.device) -> None:
    """Launch again, on the current stream of the device."""
    if not direct():
        for each in launches:
            each.kernel[each.grid](*each.arguments, **each.options)
        return
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    for (run, head), grid, arguments, _, values in launches:
        run(*grid, stream, *head, *arguments, *values)


def launch(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    constants: Mapping[str, Any],
    warps: int = 4,
) -> None:
    """Launch `kernel`, which specialises on no integer, on the current stream and device.

    Arguments, the first of which is a tensor, and constants are in the order of its signature.
    """
    launch_each(kernel, grid, arguments, ((),), constants, warps)


def launch_each(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    lasts: Sequence[tuple[int, ...]],
    constants: Mapping[str, Any],
    warps: int = 4,
) -> None:
    """Launch `kernel` several times, with further arguments each time: small whole numbers."""
    x, y, z = (*grid, 1, 1)[:3]
    record: Record | None = getattr(_local, "record", None)
    key, plain = _key(kernel, arguments, constants, warps)
    if not direct():
        options = dict(constants) if interpreted() else {**constants, "num_warps": warps}
        for last in lasts:
            given = [*arguments, *last]
            kernel[x, y, z](*given, **options)
            _compiled.setdefault(key, None)  # launched, by Triton
            if record is not None:
                record.launches.append(Launch(kernel, (x, y, z), given, options, ()))
        return
    found, values = _compiled.get(key), tuple(constants.values())
    stream = torch._C._cuda_getCurrentRawStream(key[1])
    for last in lasts:
        if found is None:
            given = [*arguments, *last]
            found = _runner(kernel[x, y, z](*given, **constants, num_warps=warps))
            _compiled[key] = found
        else:
            run, head = found
            run(x, y, z, stream, *head, *plain, *last, *values)
        if record is not None:
            made = Launch(found, (x, y, z), [*plain, *last], constants, values)
            record.launches.append(made)
    if record is not None:
        record.tensors.extend([a for a in arguments if a.__class__ not in (int, float)])


def _key(
    kernel: Any, arguments: Sequence[Any], constants: Mapping[str, Any], warps: int
) -> tuple[tuple[Any, ...], list[Any]]:
    """Return what a kernel's code depends on, and addresses in the place of tensors."""
    plain: list[Any] = []
    kinds: list[Any] = []
    addresses = widths = 0
    for a in arguments:
        kind = a.__class__
        if kind is int:
            widths |= a
            plain.append(a)
        elif kind is float:
            plain.append(a)
        else:
            address = a.data_ptr()
            addresses |= address
            kinds.append(a.dtype)
            plain.append(address)
    if addresses & 15:  # which ones are aligned matters
        kinds += [
            p & 15 for p, a in zip(plain, arguments, strict=True) if isinstance(a, torch.Tensor)
        ]
    if widths >> 31:
        kinds += [type(p) is int and p.bit_length() > 31 for p in plain]
    # By its function: a kernel's own hash takes a lock.
    device = arguments[0].get_device()
    return (kernel.fn, device, warps, *kinds, *constants.values()), plain


def launched() -> set[tuple[Any, ...]]:
    """Return what the code of the kernels launched so far depends on, leaving out the device.

    Each is the kernel, its warps, the types of its tensors and its constants, and for tensors that
    are not aligned and integers of more than 31 bits which ones.
    """
    return {(key[0], *key[2:]) for key in _compiled}


class Plan(NamedTuple):
    """Launches that are repeated on other tensors."""

    launches: list[Launch]
    places: list[list[tuple[list[Any], int]]]  # of the varying tensors among the arguments
    kept: list[Tensor]  # those that do not vary
    answer: Any


class Plans:
    """Plans of the operations that share some tensors, by name."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan] = {}

    def run(
        self,
        key: Hashable,
        tensors: Sequence[Tensor],
        work: Callable[[], Any],
    ) -> Any:
        """Do ``work()``, by its plan from the second time on, and return its answer.

        The kind of work, all that it depends on but `tensors`, is the key. `tensors`, contiguous,
        are what it reads and writes that is not the same every time. It launches kernels and does
        nothing else. Its scratch memory is kept; it may return some of it, which the next work of
        this kind writes to again.
        """
        if any(t.data_ptr() % 16 for t in tensors):
            return work()
        key = (key, *[(t.shape, t.dtype) for t in tensors])
        plan = self._plans.get(key)
        if plan is None:
            with recorded() as record:
                answer = work()
            varying = {t.data_ptr(): i for i, t in enumerate(tensors)}
            if len(varying) == len(tensors):  # else an address is ambiguous
                self._plans[key] = _plan(record, varying, answer)
            return answer
        for tensor, places in zip(tensors, plan.places, strict=True):
            value = handle(tensor)
            for arguments, place in places:
                arguments[place] = value
        repeat(plan.launches, tensors[0].device)
        return plan.answer


def _plan(record: Record, varying: dict[int, int], answer: Any) -> Plan:
    """Return the plan of what was recorded; `varying` numbers those tensors' addresses."""
    places: list[list[tuple[list[Any], int]]] = [[] for _ in varying]
    for each in record.launches:
        for place, argument in enumerate(each.arguments):
            if argument.__class__ is not int and isinstance(argument, torch.Tensor):
                argument = argument.data_ptr()  # of a public launch
            if argument in varying:
                places[varying[argument]].append((each.arguments, place))
    # What varies is the caller's; it is not stored.
    kept = {id(t): t for t in record.tensors if t.data_ptr() not in varying}
    return Plan(record.launches, places, list(kept.values()), answer)
