"""Run methods over a data set: one process per image, one record per method, resumable.

Every finished task is on disk before the next begins, so a run that is killed, even with SIGKILL,
loses only the tasks under way; started again, it goes on. An image that cannot be used, or whose
process dies, is reported with the reason, and the run goes on with the others.
"""

from __future__ import annotations

import hashlib
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from densecrf import __version__
from densecrf.cached import cached_property
from densecrf.deadline import Interrupted
from densecrf.io import Dataset, ItemError, Sample
from densecrf.metrics import confusion_matrix
from densecrf.model.parameters import NUMBERS, Parameters
from densecrf.parallel import run as run_tasks
from densecrf.parallel import stop_here
from densecrf.solvers import METHODS
from densecrf.validation import ArgumentError, check_choice, check_integer
from experiments.outcome import Outcome
from experiments.protocols import Protocol, get_parameters, get_protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from densecrf.io import Item
    from densecrf.records import RecordStore
    from densecrf.solvers.result import Result

__all__ = [
    "Plan",
    "Progress",
    "Run",
    "Solved",
    "count_pixels",
    "end_if_asked",
    "make_plan",
    "run",
    "solve",
    "solve_sample",
]

#: Called with (done, total, what): after every image, or before every run.
Progress = Callable[[int, int, str], object]


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes
    ----------
    dataset
        The data set.
    images
        Names of its images.
    methods
        Names of methods, in table order.
    protocol, parameters
        The energies; see `experiments.protocols`.
    limits
        ``gap``, ``time_limit`` and ``max_iterations`` of `densecrf.DenseCRF.solve`.
    options
        Options and limits of single methods, by method.
    threads
        Threads per image.
    label
        The name of the parameters, part of the records' paths.
    """

    dataset: Dataset
    images: tuple[str, ...]
    methods: tuple[str, ...]
    protocol: Protocol
    parameters: Parameters
    limits: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    threads: int | None = None
    label: str = "params"

    def __post_init__(self) -> None:
        if not self.images:
            raise ValueError(f"{self.dataset.path}: no images to run on")
        for name in self.images:
            if name not in self.dataset.items:
                raise ValueError(f"{self.dataset.path}: has no image named {name!r}")
        for name in self.methods:
            check_choice("methods", name, METHODS)
        if not self.methods:
            raise ArgumentError("methods", ..., "name at least one")

    def key(self, method: str, image: str) -> tuple[str, ...]:
        """Return the key of a task's record."""
        return (self.protocol.name, self.label, method, image)

    def settings(self, method: str, image: str) -> dict[str, Any]:
        """Return everything that the outcome of a task depends on."""
        return {
            "version": __version__,
            "protocol": self.protocol.describe(method),
            "parameters": {name: getattr(self.parameters, name) for name in NUMBERS},
            "limits": dict(self.limits),
            "options": dict(self.options.get(method, {})),
            "inputs": self._digest(self.dataset.items[image]),
        }

    def _digest(self, item: Item) -> str:
        """Return a digest of an image's files; missing ones are reported when it is loaded."""
        if item.name not in self._digests:
            total = hashlib.sha256()
            for path in (item.image_path, item.labels_path, item.scores_path):
                with suppress(OSError):
                    total.update(b"" if path is None else path.read_bytes())
                total.update(b"/")
            self._digests[item.name] = total.hexdigest()[:16]
        return self._digests[item.name]

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True)
class Run:
    """The outcomes of a run, and the images that failed."""

    outcomes: tuple[Outcome, ...]  # one per finished task, those of earlier runs included
    failures: Mapping[str, str]  # reasons by image
    interrupted: bool = False  # by Ctrl-C


@dataclass(frozen=True)
class Solved:
    """A result, and the wall and processor seconds that it took, its start's included."""

    result: Result
    seconds: float
    cpu: float


def solve(
    plan: Plan,
    method: str,
    sample: Sample,
    starts: dict[str, Solved],
    callback: Callable[[Any], object] | None = None,
) -> Solved:
    """Run one method on one image, from where the protocol has it start.

    Parameters
    ----------
    plan, method, sample
        The plan, one of its methods, one of its images.
    starts
        Results of methods that others start from, shared by all calls for one image.
    callback
        Called with the result so far after each iteration.
    """
    if callback is None and method in starts:
        return starts[method]
    own, first = plan.protocol.minimised(method), plan.protocol.starts.get(method)
    before = None if first is None else solve(plan, first, sample, starts)
    cpu = time.process_time()
    with warnings.catch_warnings():
        # That a constant labelling is better is in the record.
        warnings.simplefilter("ignore", UserWarning)
        result = own.model(sample.scores.energies(), sample.image, plan.parameters).solve(
            method,
            init=None if before is None else before.result.marginals,
            threads=plan.threads,
            callback=callback or end_if_asked,
            **{**plan.limits, **own.options, **plan.options.get(method, {})},
        )
    solved = Solved(result, result.seconds, time.process_time() - cpu)
    if before is not None:
        if plan.protocol.minimised(first or "") == own and before.result.energy < result.energy:
            result = replace(result, labels=before.result.labels, energy=before.result.energy)
        solved = Solved(result, solved.seconds + before.seconds, solved.cpu + before.cpu)
    if callback is None and method in plan.protocol.starts.values():
        starts[method] = solved
    return solved


def count_pixels(plan: Plan, result: Result, sample: Sample) -> NDArray[np.int64] | None:
    """Return the confusion matrix of a result, or None without ground truth."""
    palette = plan.dataset.palette
    if sample.labels is None:
        return None
    return confusion_matrix(result.labels, sample.labels, len(palette), palette.void)


def solve_sample(
    plan: Plan, method: str, sample: Sample, starts: dict[str, Solved]
) -> tuple[Result, Outcome]:
    """Run one method on one image; return its result and the record of it."""
    solved = solve(plan, method, sample, starts)
    result = solved.result
    reported = plan.protocol.reported.model(sample.scores.energies(), sample.image, plan.parameters)
    certified = plan.protocol.certified(method)
    outcome = Outcome(
        method,
        sample.name,
        result.energy if certified else reported.energy(result.labels),
        solved.seconds,
        result.lower_bound if certified else None,
        result.gap if certified else None,
        count_pixels(plan, result, sample),
        {
            "cpu_seconds": solved.cpu,
            "threads": plan.threads,
            "converged": result.converged,
            "message": result.message,
            "iterations": result.iterations,
            "ordered_calls": result.trace.ordered_calls[-1],
            "plain_calls": result.trace.plain_calls[-1],
            "best_constant": float(reported.constant_energies().min()),
            "constant": bool((result.labels == result.labels.flat[0]).all()),
        },
    )
    return result, outcome


def end_if_asked(*_: Any) -> None:
    """End a task at Ctrl-C, or when the run that started it was killed."""
    if stop_here().is_set():
        raise Interrupted


def run(
    plan: Plan, store: RecordStore, *, jobs: int = 1, progress: Any = None, client: Any = None
) -> Run:
    """Run the tasks without a valid record, and return the outcomes of all.

    Parameters
    ----------
    plan, store
        What to run, and where the records are.
    jobs
        Images at a time, each in a process of its own.
    progress
        Called after every image with (done, total, image).
    client
        A ``dask.distributed.Client`` whose workers do the work, in the place of `jobs`; data and
        records must be on a file system that all have.
    """
    check_integer("jobs", jobs, at_least=1)
    todo = {image: left for image in plan.images if (left := _unfinished(plan, store, image))}
    images, failures, interrupted = list(todo), dict[str, str](), False
    tasks = [(plan, store, image, todo[image]) for image in images]
    finished = run_tasks(
        _attempt, tasks, workers=jobs, processes=True, client=client, name="images"
    )
    try:
        for count, done in enumerate(finished, 1):
            reason = done.answer if done.error is None else str(done.error)
            if reason is not None:
                failures[images[done.number]] = reason
            if progress is not None:
                progress(count, len(images), images[done.number])
    except KeyboardInterrupt:
        interrupted = True
    records = (
        store.load(plan.key(method, image), plan.settings(method, image))
        for method in plan.methods
        for image in plan.images
    )
    outcomes = tuple(Outcome.from_json(values) for values in records if values is not None)
    return Run(outcomes, failures, interrupted)


def _unfinished(plan: Plan, store: RecordStore, image: str) -> list[str]:
    return [
        method
        for method in plan.methods
        if store.load(plan.key(method, image), plan.settings(method, image)) is None
    ]


def _attempt(plan: Plan, store: RecordStore, image: str, methods: list[str]) -> str | None:
    """Run the methods on one image and keep their records; return why that failed."""
    try:
        sample = plan.dataset.items[image].load()
        starts: dict[str, Solved] = {}
        for method in methods:
            _, outcome = solve_sample(plan, method, sample, starts)
            store.save(plan.key(method, image), plan.settings(method, image), outcome.to_json())
    except Interrupted:
        raise
    except ItemError as error:
        return error.reason
    except OSError as error:
        return f"{error.filename}: {error.strerror or error}" if error.filename else str(error)
    except (ValueError, MemoryError) as error:
        return str(error) or "out of memory"
    except Exception as error:  # a defect of this program is reported like the others
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def make_plan(
    dataset: Dataset,
    protocol: str | Protocol = "shared",
    parameters: Parameters | None = None,
    **fields: Any,
) -> Plan:
    """Return a plan, by default with the protocol's own parameters, all images and methods."""
    chosen = get_protocol(protocol)
    if parameters is None:
        parameters = get_parameters(chosen.default)
        fields.setdefault("label", chosen.default)
    fields.setdefault("images", dataset.names())
    fields.setdefault("methods", METHODS)
    return Plan(dataset, protocol=chosen, parameters=parameters, **fields)
