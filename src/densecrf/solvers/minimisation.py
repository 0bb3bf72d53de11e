"""`solve`: check the options, make a starting point, run a method, pack its result."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from densecrf.backend import Array
from densecrf.deadline import OutOfTime
from densecrf.problem.certificate import Dual, HostDual, Mixture, Potentials, Tangent
from densecrf.problem.problem import Problem, problem_of
from densecrf.solvers.loop import ROUNDING, Limits, Outcome, Step, drive, unscored
from densecrf.solvers.registry import REGISTRY, Method
from densecrf.solvers.result import Result
from densecrf.validation import (
    ArgumentError,
    as_real_array,
    check_choice,
    check_threads,
    mention,
    warn,
)

if TYPE_CHECKING:
    from densecrf.model.crf import DenseCRF

__all__ = ["minimise", "packed", "solve", "warn_of_optimum"]

BAR = 16  # characters of the progress bar


def solve(
    crf: "DenseCRF",
    method: str = "lp",
    *,
    init: Any = None,
    gap: float | None = None,
    time_limit: float | None = None,
    max_iterations: int | None = None,
    threads: int | None = None,
    callback: Callable[[Outcome[Any]], Any] | None = None,
    progress: bool = False,
    device: Any = None,
    keep_dual: bool = False,
    **options: Any,
) -> Result:
    """Minimise a model's energy.

    Parameters
    ----------
    crf : DenseCRF
        The model.
    method : str
        One of `METHODS`.
    init : array_like, str or Result, optional
        The starting point: marginals (labels, *spatial), a labelling (*spatial), another method's
        name or result. Marginals outside the simplex are projected onto it, with a warning. The
        default is ``"dc-neg"`` for the paper's methods on the linear program, the convex quadratic
        program for ``qp-cccp`` and ``dc-neg`` (as in the literature; ``dc-neg`` has its own, faster
        solver of it), and softmax(-unary), or ``"unary"``, for the others.
    gap : float, optional
        Stop when the labelling is proven to be within this fraction of the optimum; 0 runs the
        method to its end. By default 1e-3 for ``"lp"``; the paper's methods run to their end.
    time_limit : float, optional
        Seconds after which to return the best result so far, or the argmin of the unary energies if
        there is none. It includes the construction of filters, and iterations end in time for the
        evaluation of the bound; at most one filter call is made after it.
    max_iterations : int, optional
        Maximum number of iterations.
    threads : int, optional
        Maximum number of threads; by default chosen by the size of the image, up to
        ``DENSECRF_NUM_THREADS`` or all processors. The result does not depend on their number.
    callback : callable, optional
        Called after each iteration with the best result so far; returning True stops.
    progress : bool
        Show a bar that follows the iterations, in terminals and notebooks.
    device : str or torch.device, optional
        Where to solve on torch tensors, for example ``"cuda"``; needs PyTorch. By default the
        compiled core solves on the CPU.
    keep_dual : bool
        Keep the dual point that proves the bound, for `Result.verify`.
    **options
        The method's own options.

    Returns
    -------
    Result
        The best labelling seen. Ctrl-C and limits also return it, marked as not converged.
    """
    if callback is not None and not callable(callback):
        raise ArgumentError("callback", callback, "give a function of the best so far")
    limits = Limits.checked(gap, time_limit, max_iterations, callback)
    if progress:
        limits.callback = _with_progress(limits, method)
    own = check_threads(threads)
    warn_of_optimum(crf.caution, method)
    problem: Problem[Any]
    if device is None:
        problem = problem_of(crf, own)
        outcome: Outcome[Any] = minimise(problem, method, limits, init, options)
    else:
        problem, outcome = _on_device(crf, device, method, limits, init, options)
        outcome.info["device"] = str(device)
    if progress and outcome.iterations:
        print(file=sys.stderr)  # what comes next starts on a line of its own
    _warn_of_constants(problem, method, outcome)
    result = packed(problem, method, outcome, limits)
    if keep_dual and outcome.dual is not None:
        result.dual = _on_host(problem, outcome.dual)
    return result


def minimise(
    problem: Problem[Array],
    method: str,
    limits: Limits,
    init: Any = None,
    options: dict[str, Any] | None = None,
) -> Outcome[Array]:
    """Run a method on a problem, its starting point included; what `solve` does on any back end.

    Without a gap, `limits` takes the method's own. The other arguments are those of `solve`.
    """
    chosen = REGISTRY[check_choice("method", method, tuple(REGISTRY))]
    _check_compatibility(problem, method, chosen)
    options = options or {}
    for key in options:
        near = (f"option of method {method!r}", key, chosen.options())
        check_choice(*near, signature(solve).parameters)
    if limits.gap is None:
        limits.gap = chosen.gap
    return drive(
        problem,
        _start(problem, chosen, init, limits),
        _iterations(problem, chosen, options),
        limits,
        scored=chosen.scored or limits.callback is not None,
        finish=chosen.finish,
    )


def _on_device(
    crf: "DenseCRF", device: Any, method: str, limits: Limits, init: Any, options: dict[str, Any]
) -> tuple[Problem[Any], Outcome[Any]]:
    """Minimise on torch tensors; returns the problem and the outcome."""
    try:
        from densecrf.torch.problem import minimise_on
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"device={device!r}: needs PyTorch, which is not installed; "
            "pip install 'densecrf[torch]', or leave device out",
            name="torch",
        ) from error
    try:
        return minimise_on(crf, device, method, limits, init, options)
    except (OutOfTime, KeyboardInterrupt) as error:  # while the model was brought to the device
        interrupted = isinstance(error, KeyboardInterrupt)
        message = "interrupted" if interrupted else limits.out_of_time
        problem = problem_of(crf)
        return problem, unscored(problem, limits, Outcome(message=message, interrupted=interrupted))


def _check_compatibility(problem: Problem[Array], name: str, method: Method) -> None:
    tree = problem.costs.tree and method.compatibility == "tree"
    if problem.potts or tree or method.compatibility == "any":
        return
    able = [key for key, other in REGISTRY.items() if other.compatibility == "any"]
    raise ArgumentError(
        "method",
        name,
        f"solves the Potts model and tree metrics (LabelTree), not this "
        f"compatibility; use one of {', '.join(able)}",
    )


def _iterations(
    problem: Problem[Array], method: Method, options: dict[str, Any]
) -> Callable[[Array], Iterator[Step[Array]]]:
    """Return the function that iterates from marginals; wrong settings are refused at once."""
    keywords = {**method.presets, **options}
    if method.settings is not None:
        settings = method.settings(**keywords)
        return lambda y: method.steps(problem, y, settings)
    return lambda y: method.steps(problem, y, **keywords)


def _start(
    problem: Problem[Array], method: Method, init: Any, limits: Limits
) -> Callable[[], Step[Array]]:
    """Return the function that makes the starting point; what is given is checked at once."""
    if init is None:
        init = method.init
    if init is None:
        return lambda: Step(problem.unary_marginals())
    if init is method.init and not isinstance(method.init, str):
        return partial(method.init, problem)
    if isinstance(init, str):
        name = check_choice("init", init, tuple(REGISTRY))
        return partial(_start_of_method, problem, name, limits)
    crf = problem.crf
    assert crf is not None
    if isinstance(init, Result):
        init = init.marginals
    init = as_real_array("init", init)
    if init.shape in (crf.shape, (crf.n,)):
        labels = crf.check_labels(init)
        return lambda: Step(problem.indicator(problem.steps.from_numpy(labels)))
    y = crf.check_marginals("init", init)
    if y.min() < -1e-3 or np.abs(y.sum(0) - 1).max() > 1e-3:
        warn(
            "init",
            "not in the product of simplices (negative values, or columns that do not add up to "
            "1); its projection is used",
        )
    return lambda: Step(problem.steps.project(problem.steps.from_numpy(y)))


def _start_of_method(problem: Problem[Array], name: str, limits: Limits) -> Step[Array]:
    """Run another method, to its end or to the time limit, for its last marginals."""
    method = REGISTRY[name]
    own = Limits(method.gap, limits.time_limit, started=limits.started)
    found = drive(
        problem,
        _start(problem, method, None, own),
        _iterations(problem, method, {}),
        own,
        scored=method.gap is not None,  # where a gap ends it; else its last labelling alone
        finish=method.finish,
        certified=False,
    )
    cut = found if found.interrupted or (own.late and not found.converged) else None
    info = {"init": name}
    return Step(found.y, labels=found.labels, energy=found.energy, info=info, cut=cut)


def _with_progress(limits: Limits, method: str) -> Callable[[Outcome[Any]], Any]:
    """Return a callback that also keeps a line up to date, of a terminal or of a notebook's cell.

    Its bar is full when the asked gap is reached, or the last iteration.
    """
    callback = limits.callback

    def show(outcome: Outcome[Any]) -> Any:
        gap = "" if outcome.gap is None else f"  gap {100 * outcome.gap:.4f} %"
        line = f"{method} {_bar(outcome, limits)} iteration {outcome.iterations}"
        line += f"  energy {outcome.energy:,.1f}{gap}"
        print(f"\r{line:<78}", end="", file=sys.stderr, flush=True)
        return None if callback is None else callback(outcome)

    return show


def _bar(outcome: Outcome[Any], limits: Limits) -> str:
    shares = [0.0]
    if limits.gap is not None and outcome.gap is not None:
        aim = max(limits.gap, ROUNDING)  # each factor of the gap takes about the same time
        shares.append(log(max(outcome.gap, aim)) / log(aim))
    if limits.max_iterations:
        shares.append(outcome.iterations / limits.max_iterations)
    if limits.time_limit:
        shares.append(limits.seconds() / limits.time_limit)
    filled = round(BAR * min(1.0, max(shares)))
    return "█" * filled + "·" * (BAR - filled)


def packed(problem: Problem[Array], method: str, outcome: Outcome[Array], limits: Limits) -> Result:
    """Return the result of a run."""
    crf = problem.crf
    assert crf is not None
    possible = outcome.possible
    if possible is None and outcome.lower_bound is not None:
        possible = np.full(crf.n, crf.n_labels, np.int32)
    return Result(
        labels=problem.steps.to_numpy(outcome.labels).reshape(crf.shape),
        marginals=problem.steps.to_numpy(outcome.y).reshape(crf.n_labels, *crf.shape),
        energy=outcome.energy,
        lower_bound=outcome.lower_bound,
        method=method,
        converged=outcome.converged,
        message=outcome.message,
        seconds=limits.seconds(),
        iterations=outcome.iterations,
        best_constant=outcome.best_constant,
        trace=outcome.trace,
        possible=None if possible is None else possible.reshape(crf.shape),
        margin=None if outcome.margin is None else outcome.margin.reshape(crf.shape),
        info=outcome.info,
        crf=crf,
    )


def _on_host(problem: Problem[Array], dual: Dual[Array]) -> HostDual:
    """Return a dual point with NumPy's arrays."""
    to_numpy = problem.steps.to_numpy
    if isinstance(dual, Tangent):
        return Tangent(to_numpy(dual.y))

    def on_host(part: Potentials[Array]) -> Potentials[npt.NDArray[Any]]:
        offsets = None if part.offsets is None else to_numpy(part.offsets)
        summed = part.labels is None and not problem.potts
        sums = summed and not part.of_nodes
        scores = to_numpy(problem.costs.nodes(part.scores) if sums else part.scores)
        levels = (part.cells, part.levels, part.hard)
        return Potentials(scores, offsets, *levels, part.labels, of_nodes=summed)

    if isinstance(dual, Mixture):
        return Mixture(tuple((share, on_host(part)) for share, part in dual.parts))
    return on_host(dual)


def warn_of_optimum(caution: str, method: str) -> None:
    """Warn where a model is to be used with care by a method that finds its optimum."""
    if caution and method in REGISTRY and REGISTRY[method].on_lp:
        known = f"{mention('method', 'mf')} with {mention('max_iterations', 10)}"
        warn("model", f"{caution}, which {method!r} looks for; use {known}, or another model")


def _warn_of_constants(problem: Problem[Array], method: str, outcome: Outcome[Array]) -> None:
    """Warn where the pairwise weights are so strong that one label everywhere is best."""
    best, constant = outcome.best_constant
    remedy = "the pairwise weights dominate; lower "
    remedy += f"{mention('bilateral_weight')} and {mention('weight')}"
    if problem.crf is not None and problem.crf.normalization == "none":
        remedy += ', or normalise the kernels (normalization="symmetric")'
    if constant < outcome.energy < float("inf"):
        warn(
            "kernels",
            f"the constant labelling {best} has energy {constant:,.1f}, below the "
            f"{outcome.energy:,.1f} of {method!r}: {remedy}",
        )
    elif bool((outcome.labels == outcome.labels[0]).all()) and method == "lp":
        assert problem.crf is not None
        least = problem.crf.unary.argmin(0)
        if bool((least != least[0]).any()):
            found = f"the constant labelling {best} is the best that {method!r} found"
            warn("kernels", f"{found}: {remedy}")
