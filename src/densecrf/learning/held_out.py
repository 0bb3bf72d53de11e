"""Check what was learned on images that it was not learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densecrf.learning.search import gains, surely_better
from densecrf.learning.training_set import STAGES

if TYPE_CHECKING:
    from densecrf.learning.training_set import Report, TrainingSet
    from densecrf.metrics import Interval
    from densecrf.model.parameters import Parameters

__all__ = ["held_out"]

#: From the least to the most that is taken from the images: the start, adapted without labels, and
#: after each stage of learning.
CANDIDATES = ("start", "adapted", *STAGES)
_TOLERANCE = 0.03  # of the training objective of a fold


def held_out(
    data: TrainingSet, start: Parameters, folds: int, report: Report | None = None
) -> dict[str, Any] | None:
    """Compare the start, the adapted and the learned models on images left out of all of them.

    Each fold adapts and learns from its own images alone, to its own certificate. Of the
    candidates, each is chosen if it is better than the one chosen before. None without folds.

    Parameters
    ----------
    data : TrainingSet
        The images.
    start : Parameters
        The model that learning starts from.
    folds : int
        Into how many parts the images are divided.
    report : callable, optional
        As for `densecrf.fit`.
    """
    if folds == 0:
        return None
    if len(data.examples) == 1:
        told = "one image cannot be checked on others: the start is kept"
        return {"folds": 0, "chosen": "start", "verdict": told}
    folds = min(max(folds, 2), len(data.examples))
    scores: dict[str, dict[int, Any]] = {name: {} for name in CANDIDATES}
    for fold in range(folds):
        inside = [n for n in data.all if n % folds != fold]
        outside = [n for n in data.all if n % folds == fold]
        within = None if report is None else _of_fold(report, f"fold {fold + 1} of {folds}")
        centre = data.centre(start, inside, within)
        models = {"start": start, "adapted": centre}
        for stage, found in data.learn(start, centre, inside, within, _TOLERANCE):
            models[stage.learned] = stage.learned_model(found.theta)
        for name, model in models.items():
            confusions = data.confusions(model, outside)
            scores[name].update(zip(outside, confusions, strict=True))
    by_image = {name: [found[n] for n in data.all] for name, found in scores.items()}

    chosen = "start"
    for name in CANDIDATES[1:]:
        if surely_better(by_image[name], by_image[chosen]):
            chosen = name
    over_start = {name: gains(by_image[name], by_image["start"]) for name in CANDIDATES[1:]}
    return {
        "folds": folds,
        "held_out": {
            f"{name} minus start": {
                metric: {"gain": g.estimate, "low": g.low, "high": g.high}
                for metric, g in found.items()
            }
            for name, found in over_start.items()
        },
        "chosen": chosen,
        "verdict": _verdict(chosen, folds, over_start),
    }


def _of_fold(report: Report, name: str) -> Report:
    return lambda stage, *numbers: report(f"{name}, {stage}", *numbers)


def _verdict(chosen: str, folds: int, over_start: dict[str, dict[str, Interval]]) -> str:
    learned = CANDIDATES[2:]
    head = {
        "start": "no better than the start on held-out folds: the start is kept",
        "adapted": "learning is no better than adapting on held-out folds: the adapted one is kept",
    }.get(chosen, "better than the start on held-out folds: use it")
    if chosen in learned[:-1]:
        kept = learned[: learned.index(chosen) + 1]
        head += f", with {' and '.join(kept)} learned and the rest as adapted"
    told = "; ".join(f"{name} {_points(found)}" for name, found in over_start.items())
    return f"{head} ({folds} folds; over the start: {told})"


def _points(found: dict[str, Interval]) -> str:
    titles = {"accuracy": "accuracy", "iou": "IoU"}
    return " and ".join(
        f"{100 * g.estimate:+.2f} [{100 * g.low:+.2f}, {100 * g.high:+.2f}] {titles[name]}"
        for name, g in found.items()
    )
