"""Find the five parameters of the kernels for a method (the paper's cross-validation, C.1).

Optuna in the place of Spearmint. Images come in a shuffled order, in batches; a trial whose
score so far is below the median of the others' at that point is given up. Trials are kept in an
SQLite file: a study that was interrupted, or killed, goes on, and several workers share one.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecrf.experiments.figures import COLORS, new_figure
from densecrf.experiments.metrics import METRICS
from densecrf.experiments.runner import end_if_orphaned
from densecrf.presets import NUMBERS, Preset, write_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from matplotlib.figure import Figure

    from densecrf.experiments.target import Target

__all__ = ["Tuned", "draw_history", "tune"]

_HEARTBEAT = 30  # seconds; a worker silent for four of these is taken for dead


@dataclass(frozen=True)
class Tuned:
    """What a study found.

    Attributes
    ----------
    parameters, score
        The best ones.
    start, start_score
        The best of the parameters that were given to begin with, None where none was finished.
    trials
        ``(number, score or None, state)`` of all trials, in order.
    failures
        Images that were left out, and why.
    interrupted
        Whether Ctrl-C ended it before its number of trials.
    """

    parameters: Preset
    score: float
    start: Preset | None
    start_score: float | None
    trials: tuple[tuple[int, float | None, str], ...]
    failures: Mapping[str, str]
    interrupted: bool = False

    def write(self, path: str | Path, target: Target) -> None:
        """Write the parameters as a file for ``--params``."""
        write_preset(
            path,
            self.parameters,
            score=self.score,
            start_score=self.start_score,
            trials=len(self.trials),
            settings=json.loads(target.settings()),
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
        The SQLite file; made where it is missing.
    trials
        Trials in all.
    workers
        Processes that search at the same time.
    progress
        Called with (trials done, trials, best score or None), now and then.

    Raises
    ------
    ValueError
        When no image can be used, or the file holds a study of something else.
    """
    if trials < 1 or workers < 1:
        raise ValueError(f"trials={trials} and workers={workers} must be at least 1")
    usable, failures = target.usable()
    target = replace(target, images=usable)
    path = Path(storage)
    path.parent.mkdir(parents=True, exist_ok=True)
    study = _open(path, target, create=True)
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_search, args=(path, target, trials, number), daemon=True)
        for number in range(workers)
    ]
    interrupted = False
    try:
        for process in processes:
            process.start()
        for process in processes:
            while process.is_alive():
                process.join(timeout=1.0)
                if progress is not None:
                    progress(_finished(study), trials, _best_score(study))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()
    return _summary(study, target.pixels(), failures, interrupted)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise ImportError("tuning needs optuna: pip install 'densecrf[tune]'") from error
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
    before = study.user_attrs.get("settings")
    if before is not None and before != target.settings():
        raise ValueError(
            f"{path}: holds a study with other settings ({_difference(before, target)}); choose "
            "another file, or remove it to begin anew"
        )
    if create and before is None:
        for preset in target.start:
            study.enqueue_trial(
                _inside(preset, target.ranges), user_attrs={"given": True}, skip_if_exists=True
            )
        study.set_user_attr("settings", target.settings())
    return study


def _difference(before: str, target: Target) -> str:
    old, new = json.loads(before), json.loads(target.settings())
    names = [name for name in new if old.get(name) != new[name]]
    return ", ".join(names)


def _inside(preset: Preset, ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    numbers = {name: float(getattr(preset, name)) for name in NUMBERS}
    return {name: min(max(value, ranges[name][0]), ranges[name][1])
            for name, value in numbers.items()}  # fmt: skip


def _finished(study: Any) -> int:
    states = ("COMPLETE", "PRUNED")
    return sum(trial.state.name in states for trial in study.get_trials(deepcopy=False))


def _best_score(study: Any) -> float | None:
    done = [t.value for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE"]
    return max(done, default=None)


def _search(path: Path, target: Target, trials: int, worker: int) -> None:
    """Make trials until there are enough, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", UserWarning)
    optuna = _optuna()
    study = _open(path, target)
    # Workers must not propose the same; sessions neither.
    study.sampler = optuna.samplers.TPESampler(
        seed=target.seed + 1000 * worker + len(study.get_trials(deepcopy=False)),
        n_startup_trials=10,
        constant_liar=True,
        multivariate=True,  # the weights pull against each other
    )
    order = np.random.default_rng(target.seed).permutation(len(target.images))
    items = [target.dataset.items[target.images[i]] for i in order]

    def enough(study: Any, _trial: Any) -> None:
        if _finished(study) >= trials:
            study.stop()

    if _finished(study) < trials:
        study.optimize(lambda trial: _score(trial, target, items), callbacks=[enough])


def _score(trial: Any, target: Target, items: list[Any]) -> float:
    """Score one set of parameters, or give it up."""
    numbers = {name: trial.suggest_float(name, *target.ranges[name], log=True) for name in NUMBERS}
    preset = Preset(**numbers)
    total = np.zeros((len(target.dataset.palette),) * 2, np.int64)
    checkpoint = target.first_batch
    for done, item in enumerate(items, 1):
        end_if_orphaned()
        total += target.confusion(preset, item.load())
        if done == checkpoint and done < len(items):
            trial.report(float(METRICS[target.metric](total)), done)
            if trial.should_prune():
                raise _optuna().TrialPruned
            checkpoint *= 2
    return float(METRICS[target.metric](total))


def _summary(study: Any, pixels: int, failures: dict[str, str], interrupted: bool) -> Tuned:
    trials = study.get_trials(deepcopy=False)
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    if not done:
        reasons = {t.system_attrs.get("fail_reason") for t in trials if t.state.name == "FAIL"}
        raise ValueError(f"no trial was finished ({reasons or 'interrupted before the first'})")
    best = max(done, key=lambda trial: trial.value)
    given = [trial for trial in done if trial.user_attrs.get("given")]
    start = max(given, key=lambda trial: trial.value, default=None)
    return Tuned(
        Preset(
            **best.params, pixels=pixels, about=f"tuned: {best.value:.4f} in trial {best.number}"
        ),
        float(best.value),
        None if start is None else Preset(**start.params),
        None if start is None else float(start.value),
        tuple((t.number, t.value, t.state.name.lower()) for t in trials),
        failures,
        interrupted,
    )


def draw_history(tuned: Tuned, metric: str) -> Figure:
    """Draw the scores of the trials and the best so far."""
    figure = new_figure(5.6, 3.4)
    axis = figure.subplots()
    done = [(number, score) for number, score, state in tuned.trials if state == "complete"]
    numbers = [number for number, _ in done]
    scores = [100 * (score or 0) for _, score in done]
    axis.plot(numbers, scores, "o", color=COLORS["mf"], ms=4, label="trial")
    best = np.maximum.accumulate(scores)
    axis.plot(numbers, best, drawstyle="steps-post", color=COLORS["lp"], label="best so far")
    if tuned.start_score is not None:
        axis.axhline(100 * tuned.start_score, color="0.5", ls=":", label="best given")
    given_up = sum(state == "pruned" for *_, state in tuned.trials)
    axis.set_title(f"{len(tuned.trials)} trials, {given_up} given up early", fontsize="medium")
    axis.set_xlabel("trial")
    axis.set_ylabel("accuracy (%)" if metric == "accuracy" else "mean IoU (%)")
    axis.set_ylim(max(min(scores), np.median(scores) - 6) - 0.5, max(scores) + 0.7)
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3)
    return figure
