"""Check what was learned on images that it was not learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densecrf.experiments.metrics import Interval, bootstrap

if TYPE_CHECKING:
    from densecrf.learning.training_set import Report, TrainingSet
    from densecrf.presets import Model

__all__ = ["held_out"]

_TOLERANCE = 0.03  # of the training objective of a fold
_WORSE = 0.003  # accuracy or IoU that a better model may lose where it gains in the other


def held_out(
    data: TrainingSet, start: Model, folds: int, report: Report | None = None
) -> dict[str, Any] | None:
    """Compare the start, the adapted and the learned model on images left out of both.

    Each fold adapts and learns from its own images alone, to its own certificate. None without at
    least two folds.

    Parameters
    ----------
    data : TrainingSet
        The images.
    start : Model
        The model that learning starts from.
    folds : int
        Into how many parts the images are divided.
    report : callable, optional
        As for `densecrf.fit`.
    """
    count = len(data.examples)
    folds = min(folds, count)
    if folds < 2:
        return None
    scores: dict[str, dict[int, Any]] = {"start": {}, "adapted": {}, "learned": {}}
    for fold in range(folds):
        inside = [n for n in data.all if n % folds != fold]
        outside = [n for n in data.all if n % folds == fold]
        learned = centre = data.centre(start, inside)
        for stage, found in data.learn(start, centre, inside, report, _TOLERANCE):
            learned = stage.learned_model(found.theta)
        for name, model in (("start", start), ("adapted", centre), ("learned", learned)):
            confusions = data.confusions(model, outside)
            scores[name].update(zip(outside, confusions, strict=True))
    by_image = {name: [found[n] for n in data.all] for name, found in scores.items()}

    def gains(better: str, worse: str) -> dict[str, Interval]:
        return {
            metric: bootstrap(by_image[better], metric, minus=by_image[worse])
            for metric in ("accuracy", "iou")
        }

    chosen = "adapted" if _better(gains("adapted", "start")) else "start"
    if _better(gains("learned", chosen)):
        chosen = "learned"
    told = gains("learned", "start")
    return {
        "folds": folds,
        "held_out": {
            f"{name} minus start": {
                metric: {"gain": g.estimate, "low": g.low, "high": g.high}
                for metric, g in gains(name, "start").items()
            }
            for name in ("adapted", "learned")
        },
        "chosen": chosen,
        "verdict": _verdict(chosen, folds, told, gains("adapted", "start")),
    }


def _better(gains: dict[str, Interval]) -> bool:
    """Whether held-out images gain, more surely than by chance."""
    total = sum(g.estimate for g in gains.values())
    spread = sum(g.high - g.low for g in gains.values())
    return total > 0.25 * spread and min(g.estimate for g in gains.values()) > -_WORSE


def _verdict(
    chosen: str, folds: int, learned: dict[str, Interval], adapted: dict[str, Interval]
) -> str:
    told = f"learned {_points(learned)}, adapted without labels {_points(adapted)}"
    head = {
        "learned": "better than the start on held-out folds: use it",
        "adapted": "learning is no better than adapting on held-out folds: the adapted one is kept",
        "start": "no better than the start on held-out folds: the start is kept",
    }[chosen]
    return f"{head} ({folds} folds; over the start: {told})"


def _points(gains: dict[str, Interval]) -> str:
    return " and ".join(
        f"{100 * g.estimate:+.2f} [{100 * g.low:+.2f}, {100 * g.high:+.2f}] points of {name}"
        for name, g in gains.items()
    )
