"""Tune the five parameters of the kernels for a method (the paper's cross-validation, C.1).

Optuna takes the place of Spearmint. Images come in a shuffled order, in batches; a trial whose
score so far is below the median of the others' at that point is pruned. Trials are kept in an
SQLite file: a study that was interrupted, or killed, goes on, and several workers share one.
"""

from __future__ import annotations

import math
import threading
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.io import ItemError
from densecrf.metrics import METRICS
from densecrf.model.parameters import NUMBERS, Parameters, write_parameters
from densecrf.parallel import run
from densecrf.validation import ArgumentError, check_choice, check_integer
from experiments.figures import COLORS, new_figure
from experiments.runner import Plan, count_pixels, end_if_asked, solve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from densecrf.io import Sample

__all__ = ["RANGES", "Target", "Tuned", "draw_history", "ranges_around", "tune"]

#: Where to search, on logarithmic scales.
RANGES: dict[str, tuple[float, float]] = {
    "sigma": (0.5, 10.0),
    "weight": (0.1, 30.0),
    "sigma_xy": (5.0, 200.0),
    "sigma_color": (2.0, 50.0),
    "bilateral_weight": (0.1, 50.0),
}
_HEARTBEAT = 30  # seconds; a worker silent for four of these is taken for dead


def ranges_around(preset: Parameters, factor: float) -> dict[str, tuple[float, float]]:
    """Return ranges that keep every number within a factor of a preset's.

    Examples
    --------
    >>> ranges_around(Parameters(sigma=3), 2)["sigma"]
    (1.5, 6)
    """
    if not 1 < factor < math.inf:
        raise ArgumentError("within", factor, "must be a factor above 1")
    values = {name: getattr(preset, name) for name in NUMBERS}
    return {name: (value / factor, value * factor) for name, value in values.items()}


@dataclass(frozen=True)
class Target:
    """What to tune.

    Attributes
    ----------
    plan
        Images, one method, protocol and limits; its parameters are replaced by those of a trial.
    metric
        ``"accuracy"`` or ``"iou"``.
    ranges
        Where to search.
    start
        Parameters that are tried first.
    seed
        Of the search and of the order of images.
    first_batch
        After how many images a trial may be pruned, again and again with twice as many.
    """

    plan: Plan
    metric: str = "accuracy"
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(RANGES))
    start: tuple[Parameters, ...] = (Parameters(3, 3, 60, 13, 10), Parameters())
    seed: int = 0
    first_batch: int = 8

    def __post_init__(self) -> None:
        if len(self.plan.methods) != 1:
            raise ArgumentError("methods", self.plan.methods, "must be one method to tune")
        check_choice("metric", self.metric, tuple(METRICS))
        check_integer("first_batch", self.first_batch, at_least=1)
        for name in NUMBERS:
            low, high = self.ranges.get(name, (math.nan, math.nan))
            if not 0 < low <= high < math.inf:
                raise ArgumentError(
                    f"ranges[{name!r}]", (low, high), "must be two positive numbers, low to high"
                )

    def settings(self) -> dict[str, Any]:
        """Return, as plain values, everything that scores depend on."""
        (method,) = self.plan.methods
        return {
            "dataset": str(self.plan.dataset.path.resolve()),
            "images": list(self.plan.images),
            "method": method,
            "metric": self.metric,
            "protocol": self.plan.protocol.describe(method),
            "limits": dict(self.plan.limits),
            "ranges": {name: list(self.ranges[name]) for name in NUMBERS},
            "seed": self.seed,
        }

    def usable(self) -> tuple[Target, dict[str, str]]:
        """Load every image once; return the target without those that cannot be scored, and why.

        Raises
        ------
        ValueError
            When no image can be scored.
        """
        dataset, failures = self.plan.dataset, {}
        for name in self.plan.images:
            try:
                if dataset.items[name].load().labels is None:
                    failures[name] = f"{dataset.path} has no labels/ to score against"
            except ItemError as error:  # noqa: PERF203
                failures[name] = error.reason
        images = tuple(name for name in self.plan.images if name not in failures)
        if not images:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(failures.items())[:3])
            raise ValueError(f"{dataset.path}: no image can be scored ({why})")
        return replace(self, plan=replace(self.plan, images=images)), failures

    def confusion(self, preset: Parameters, sample: Sample) -> NDArray[np.int64]:
        """Run the method on an image and return its confusion matrix."""
        plan = replace(self.plan, parameters=preset)
        counts = count_pixels(plan, solve(plan, plan.methods[0], sample, {}).result, sample)
        assert counts is not None  # `usable` left such images out
        return counts

    def confusions(self, preset: Parameters) -> NDArray[np.int64]:
        """Return ``(N, L, L)``, the confusion matrices of all images with these parameters."""
        samples = (self.plan.dataset.items[name].load() for name in self.plan.images)
        return np.stack([self.confusion(preset, sample) for sample in samples])


@dataclass(frozen=True)
class Tuned:
    """The result of a study."""

    parameters: Parameters  # of the best trial
    score: float
    start: Parameters | None  # the best of the parameters given, where one was finished
    start_score: float | None
    trials: tuple[tuple[int, float | None, str], ...]  # number, score, state
    failures: Mapping[str, str]  # images left out, and why
    interrupted: bool = False  # by Ctrl-C

    def write(self, path: str | Path, target: Target) -> None:
        """Write the parameters as a file for ``--params``."""
        write_parameters(
            path,
            self.parameters,
            score=self.score,
            start_score=self.start_score,
            trials=len(self.trials),
            settings=target.settings(),
            left_out=dict(self.failures),
        )


def tune(
    target: Target,
    storage: str | Path,
    *,
    trials: int = 100,
    workers: int = 1,
    progress: Callable[[int, int, float | None], object] | None = None,
) -> Tuned:
    """Search until the study has `trials` trials, earlier sessions' included.

    Parameters
    ----------
    target
        What to tune.
    storage
        The SQLite file, created where it is missing.
    trials
        Trials in all.
    workers
        Processes that search at the same time.
    progress
        Called about once per second with (trials done, trials, best score or None).

    Raises
    ------
    ValueError
        When no image can be used, or the file holds a study of something else.
    """
    check_integer("trials", trials, at_least=1)
    check_integer("workers", workers, at_least=1)
    target, failures = target.usable()
    path = Path(storage)
    path.parent.mkdir(parents=True, exist_ok=True)
    study = _open(path, target, create=True)
    tasks = [partial(_search, path, target, trials, number) for number in range(workers)]
    interrupted, ended = False, threading.Event()

    def tell() -> None:
        while progress is not None and not ended.wait(1.0):
            scores = (trial.value for trial in _trials(study, "COMPLETE"))
            progress(_finished(study), trials, max(scores, default=None))

    telling = threading.Thread(target=tell)
    telling.start()
    try:
        errors = [done.error for done in run(tasks, [()] * workers, processes=True)]
        if not _trials(study, "COMPLETE") and errors[0] is not None:
            raise errors[0]
    except KeyboardInterrupt:
        interrupted = True
    finally:
        ended.set()
        telling.join()
    shapes = (target.plan.dataset.items[name].image().shape for name in target.plan.images)
    pixels = int(np.median([shape[0] * shape[1] for shape in shapes]))
    return _summary(study, pixels, failures, interrupted)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise ImportError("tuning needs optuna: pip install -e '.[experiments]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna


def _open(path: Path, target: Target, *, create: bool = False) -> Any:
    """Open the study, or make it; refuse one that was made with other settings."""
    optuna = _optuna()
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{path.resolve()}",
            heartbeat_interval=_HEARTBEAT,
            grace_period=4 * _HEARTBEAT,
            engine_kwargs={"connect_args": {"timeout": 60}},
        )
        study = optuna.create_study(
            study_name="densecrf",
            storage=storage,
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=target.seed, n_startup_trials=10),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
        )
    except Exception as error:
        # SQLAlchemy's errors are not ours to import; what the user can act on is the file.
        raise ValueError(f"{path}: is not a file of trials, or cannot be written ({error})") from (
            error
        )
    before, now = study.user_attrs.get("settings"), target.settings()
    if before is not None and before != now:
        raise ValueError(
            f"{path}: holds a study with other settings "
            f"({', '.join(name for name in now if before.get(name) != now[name])}); choose another "
            "file, or remove it to begin anew"
        )
    if create and before is None:
        for preset in target.start:
            inside = {n: float(np.clip(getattr(preset, n), *target.ranges[n])) for n in NUMBERS}
            study.enqueue_trial(inside, user_attrs={"given": True}, skip_if_exists=True)
        study.set_user_attr("settings", now)
    return study


def _trials(study: Any, *states: str) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in states]


def _finished(study: Any) -> int:
    return len(_trials(study, "COMPLETE", "PRUNED"))


def _search(path: Path, target: Target, trials: int, worker: int) -> None:
    """Make trials until there are enough, in a process of its own."""
    optuna = _optuna()
    study = _open(path, target)
    # Workers must not propose the same; sessions neither.
    study.sampler = optuna.samplers.TPESampler(
        seed=target.seed + 1000 * worker + len(study.get_trials(deepcopy=False)),
        n_startup_trials=10,
        constant_liar=True,
        multivariate=True,  # the parameters are correlated
    )
    order = np.random.default_rng(target.seed).permutation(target.plan.images)
    items = [target.plan.dataset.items[name] for name in order]

    def enough(study: Any, _trial: Any) -> None:
        if _finished(study) >= trials:
            study.stop()

    if _finished(study) < trials:
        study.optimize(lambda trial: _score(trial, target, items), callbacks=[enough])


def _score(trial: Any, target: Target, items: list[Any]) -> float:
    """Score one set of parameters, or prune the trial."""
    numbers = {name: trial.suggest_float(name, *target.ranges[name], log=True) for name in NUMBERS}
    preset = Parameters(**numbers)
    total = np.zeros((len(target.plan.dataset.palette),) * 2, np.int64)
    checkpoint = target.first_batch
    for done, item in enumerate(items, 1):
        end_if_asked()
        total += target.confusion(preset, item.load())
        if done == checkpoint and done < len(items):
            trial.report(float(METRICS[target.metric](total)), done)
            if trial.should_prune():
                raise _optuna().TrialPruned
            checkpoint *= 2
    return float(METRICS[target.metric](total))


def _summary(study: Any, pixels: int, failures: dict[str, str], interrupted: bool) -> Tuned:
    done = _trials(study, "COMPLETE")
    if not done:
        reasons = {trial.system_attrs.get("fail_reason") for trial in _trials(study, "FAIL")}
        raise ValueError(f"no trial was finished ({reasons or 'interrupted before the first'})")
    best = max(done, key=lambda trial: trial.value)
    given = [trial for trial in done if trial.user_attrs.get("given")]
    start = max(given, key=lambda trial: trial.value, default=None)
    return Tuned(
        Parameters(**best.params, pixels=pixels, about=f"tuned: {best.value:.4f}"),
        float(best.value),
        None if start is None else Parameters(**start.params),
        None if start is None else float(start.value),
        tuple((t.number, t.value, t.state.name.lower()) for t in study.get_trials()),
        failures,
        interrupted,
    )


def draw_history(tuned: Tuned, metric: str) -> Figure:
    """Draw the scores of the trials and the best so far."""
    figure = new_figure(5.6, 3.4)
    axis = figure.subplots()
    done = [
        (number, 100 * (score or 0)) for number, score, state in tuned.trials if state == "complete"
    ]
    numbers, scores = zip(*done, strict=True)
    axis.plot(numbers, scores, "o", color=COLORS["mf"], ms=4, label="trial")
    best = np.maximum.accumulate(scores)
    axis.plot(numbers, best, drawstyle="steps-post", color=COLORS["lp"], label="best so far")
    if tuned.start_score is not None:
        axis.axhline(100 * tuned.start_score, color="0.5", ls=":", label="best given")
    pruned = sum(state == "pruned" for *_, state in tuned.trials)
    axis.set_title(f"{len(tuned.trials)} trials, {pruned} pruned early", fontsize="medium")
    axis.set_xlabel("trial")
    axis.set_ylabel("accuracy (%)" if metric == "accuracy" else "mean IoU (%)")
    axis.set_ylim(max(min(scores), np.median(scores) - 6) - 0.5, max(scores) + 0.7)
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3)
    return figure
