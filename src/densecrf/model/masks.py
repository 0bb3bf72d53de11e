r"""Masks as they come in, and the evidence that they are.

Errors of masks are near their borders. So a hard mask is evidence that grows with the distance d
from its border,

.. math:: m = \pm\bigl(m_0 + m_1 (d / R)^2\bigr), \qquad d \le R,

and pixels further away than R, the *border*, keep their label, as does the core of parts that are
thin: pixels inside that are further from the border than about half of the thickness near them.
Without these, the optimum of a mask that is held with a small confidence everywhere is often the
empty mask: a border costs more than all pixels inside gain.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from densecrf.io.coco import box_of, decode, encode
from densecrf.model.unaries import MARGIN
from densecrf.validation import (
    ArgumentError,
    FloatArray,
    as_real_array,
    check_choice,
    check_finite,
    check_fits,
    mention,
)

__all__ = [
    "BORDER",
    "FAR",
    "KINDS",
    "NEAR",
    "Evidence",
    "GivenMasks",
    "box_mask",
    "evidence_near_border",
    "evidence_of",
    "margin_of",
    "read_masks",
]

#: What masks can be, where it does not show.
KINDS = ("masks", "probabilities", "logits", "xyxy", "xywh", "coco")

BORDER = 6.0  # pixels by which a mask's border may be wrong
NEAR, FAR = 0.1, 2.5  # nats of evidence at the border, and what is added at its full distance
THICK = 0.55  # of the largest distance from the border nearby: beyond it is the core
CLIP = 12.0  # nats: the most that a probability or logit says

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GivenMasks:
    """Masks as they were given: hard ones, or log-odds."""

    count: int
    hard: Callable[[int], Bools] | None
    odds: Callable[[int], FloatArray] | None
    restored: Callable[[list[Bools]], Any]
    scores: npt.NDArray[np.float64]
    boxes: npt.NDArray[np.float64] | None = None


def read_masks(masks: Any, shape: tuple[int, int], kind: str | None, scores: Any) -> GivenMasks:
    """Read masks of an image of this shape; the parameters are those of `refine_masks`."""
    if kind is not None:
        check_choice("kind", kind, KINDS)
    if kind == "coco" or (kind is None and _is_coco(masks, shape)):
        return _read_coco(masks, shape, scores)
    array = as_real_array("masks", masks)
    if kind in ("xyxy", "xywh"):
        return _read_boxes(array, shape, kind, scores)
    if array.shape[-2:] != shape or array.ndim not in (2, 3):
        remedy = f"shape {array.shape} for an image of {shape}; give (n, {shape[0]}, {shape[1]})"
        if array.ndim == 2 and array.shape[1] == 4:
            remedy += f", or say {mention('kind', 'xyxy')} where these are boxes"
        raise ArgumentError("masks", ..., remedy)
    check_fits("masks", array.shape)
    low, high = check_finite("masks", array)
    kind = _kind_of(array, low, high) if kind is None else kind
    if kind == "masks" and array.dtype != bool and not ((array == 0) | (array == high)).all():
        remedy = f"values from {low:g} to {high:g} that are not 0 and one more; say what they are, "
        raise ArgumentError("masks", ..., f"{remedy}for example {mention('kind', 'logits')}")
    if kind == "probabilities" and not 0 <= low <= high <= 1:
        remedy = f"values from {low:g} to {high:g}; probabilities are from 0 to 1. For logits say "
        raise ArgumentError("masks", ..., remedy + mention("kind", "logits"))
    planes = array.reshape(-1, *shape)
    on = array.dtype.type(high if high > 0 else 1)

    def restored(found: list[Bools]) -> Any:
        out = np.empty_like(planes)
        for i, mask in enumerate(found):
            if kind == "logits":
                size = np.maximum(np.abs(planes[i]), np.finfo(np.float16).tiny)
                out[i] = np.where(mask, size, -size)
            else:
                np.multiply(mask, on if kind == "masks" else 1, out=out[i], casting="unsafe")
        return out.reshape(array.shape)

    hard: Callable[[int], Bools] | None = None
    odds: Callable[[int], FloatArray] | None = None
    if kind == "masks":
        hard = partial(_hard, planes)
    else:
        odds = partial(_log_odds, planes, kind == "logits")
    return GivenMasks(len(planes), hard, odds, restored, _scores(scores, len(planes)))


def _hard(planes: npt.NDArray[Any], i: int) -> Bools:
    return np.asarray(planes[i] != 0)


def _log_odds(planes: npt.NDArray[Any], logits: bool, i: int) -> FloatArray:
    """Return one plane of logits or probabilities as log-odds."""
    plane = planes[i].astype(np.float64)
    if not logits:
        with np.errstate(divide="ignore"):
            plane = np.log(plane) - np.log1p(-plane)
    return np.asarray(np.clip(plane, -CLIP, CLIP), np.float32)


def _kind_of(array: npt.NDArray[Any], low: float, high: float) -> str:
    """Return what an array of masks holds."""
    if array.dtype.kind in "bui" or (low == 0 and ((array == 0) | (array == high)).all()):
        return "masks"
    if low >= 0 and high <= 1:
        return "probabilities"
    if low < 0:
        return "logits"
    remedy = f"values from {low:g} to {high:g} are no probabilities; if they are logits, say "
    raise ArgumentError("masks", ..., remedy + mention("kind", "logits"))


def _scores(scores: Any, count: int) -> npt.NDArray[np.float64]:
    if scores is None:
        return np.ones(count)
    array = as_real_array("scores", scores)
    if array.shape != (count,):
        raise ArgumentError(
            "scores", ..., f"shape {array.shape} for {count} masks; give ({count},)"
        )
    low, high = check_finite("scores", array)
    if array.size and not 0 < low <= high <= 1:
        raise ArgumentError("scores", ..., f"from {low:g} to {high:g}; give 0 < score <= 1")
    return array.astype(np.float64)


def _is_coco(masks: Any, shape: tuple[int, int]) -> bool:
    """Whether these are annotations, run lengths or polygons, not an array in nested lists."""
    if not isinstance(masks, (list, tuple)) or not masks:
        return False
    first = masks[0]
    if isinstance(first, dict):
        return True
    if not (isinstance(first, (list, tuple)) and first and isinstance(first[0], (list, tuple))):
        return False
    try:
        return tuple(np.shape(masks)[-2:]) != tuple(shape)
    except ValueError:  # polygons of several lengths
        return True


def _read_coco(masks: Any, shape: tuple[int, int], scores: Any) -> GivenMasks:
    """Return the masks of annotations or segmentations; boxes where an annotation has no more."""
    hard: list[Bools] = []
    boxed: list[Any] = []
    for i, each in enumerate(masks):
        annotated = isinstance(each, dict) and "counts" not in each
        segmentation = each.get("segmentation") if annotated else each
        box = None
        try:
            if annotated and not segmentation and "bbox" in each:
                box = _corners(as_real_array("bbox", each["bbox"]).reshape(1, -1), "xywh")[0]
                mask = box_mask(box, shape)
            elif segmentation is None:
                raise ArgumentError("segmentation", None, "there is none, and no bbox")
            else:
                mask = decode(segmentation, shape)
        except ArgumentError as error:
            raise ArgumentError(f"masks[{i}]", ..., str(error)) from error
        hard.append(mask)
        boxed.append(np.full(4, np.nan) if box is None else box)
    if scores is None and all(isinstance(each, dict) and "score" in each for each in masks):
        scores = np.clip([float(each["score"]) for each in masks], 1e-3, 1.0)
    weights = _scores(scores, len(hard))

    def restored(found: list[Bools]) -> Any:
        out = [_annotation(each, mask) for each, mask in zip(masks, found, strict=True)]
        return type(masks)(out)

    return GivenMasks(
        len(hard), hard.__getitem__, None, restored, weights, np.reshape(boxed, (-1, 4))
    )


def _annotation(given: Any, mask: Bools) -> Any:
    """Return an annotation or a segmentation with another mask."""
    if not isinstance(given, dict) or "counts" in given:
        return encode(mask, given)
    out = dict(given)
    if given.get("segmentation"):
        out["segmentation"] = encode(mask, given["segmentation"])
    else:
        out["segmentation"] = encode(mask, {"counts": ""})
    if "area" in given:
        out["area"] = int(mask.sum())
    if "bbox" in given:
        out["bbox"] = box_of(mask)
    return out


def _read_boxes(
    array: npt.NDArray[Any], shape: tuple[int, int], kind: str, scores: Any
) -> GivenMasks:
    if array.ndim != 2 or array.shape[1] not in (4, 5):
        remedy = f"shape {array.shape}; give (n, 4), or (n, 5) with the scores"
        raise ArgumentError("masks", ..., remedy)
    check_finite("masks", array)
    if scores is None and array.shape[1] == 5:
        scores = array[:, 4]
    corners = _corners(array[:, :4], kind)
    inside = [box_mask(box, shape) for box in corners]
    for box, mask in zip(array[:, :4], inside, strict=True):
        if not mask.any():
            remedy = f"box {box.tolist()} holds no pixel of an image of {shape}; "
            raise ArgumentError("masks", ..., remedy + f"give it as {kind}, in pixels")

    def restored(found: list[Bools]) -> Any:
        boxes = np.array([box_of(mask) for mask in found], np.float64).reshape(-1, 4)
        if kind == "xyxy":
            boxes[:, 2:] += boxes[:, :2]
        return np.concatenate([boxes, array[:, 4:]], 1).astype(array.dtype)

    return GivenMasks(
        len(array), inside.__getitem__, None, restored, _scores(scores, len(array)), corners
    )


def _corners(boxes: npt.NDArray[Any], kind: str) -> npt.NDArray[np.float64]:
    """Return boxes as x0, y0, x1, y1."""
    if boxes.shape[1:] != (4,):
        raise ArgumentError("bbox", boxes.tolist(), "give x, y, width, height")
    check_finite("bbox", boxes)
    out = boxes.astype(np.float64)
    if kind == "xywh":
        out[:, 2:] += out[:, :2]
    return out


def box_mask(box: npt.NDArray[np.float64], shape: tuple[int, int]) -> Bools:
    """Return the pixels whose centre lies in a box."""
    rows, columns = np.arange(shape[0]) + 0.5, np.arange(shape[1]) + 0.5
    inside_rows = (rows >= box[1]) & (rows < box[3])
    inside_columns = (columns >= box[0]) & (columns < box[2])
    return np.asarray(inside_rows[:, None] & inside_columns)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Log-odds of a mask: in a box of the image, and everywhere outside it.

    Attributes
    ----------
    box : tuple of slice
        Rows and columns.
    odds : ndarray, (rows, columns)
        Log-odds; infinite where the label is held.
    outside : ndarray, (H, W), or float
        Those outside the box, all negative.
    """

    box: tuple[slice, slice]
    odds: FloatArray
    outside: Any


def evidence_of(
    given: GivenMasks, border: float | None, confidence: float | None, i: int
) -> Evidence:
    """Return the log-odds of a mask."""
    weight = np.float32(given.scores[i])
    if given.odds is not None:
        soft = weight * given.odds(i)
        mask = soft > 0
    else:
        assert given.hard is not None
        mask = given.hard(i)
        margin = np.float32(margin_of(confidence))
        soft = np.where(mask, weight * margin, -weight * margin)
    if border is None or (given.odds is None and confidence is not None):
        return Evidence(_around(mask, 0), soft, soft)
    box = _around(mask, int(np.ceil(border)) + 1)
    part = mask[box]
    if given.boxes is not None and not np.isnan(given.boxes[i]).any():
        return Evidence(box, weight * _of_box(part, border), -np.inf)
    near = None if given.odds is None else soft[box]
    odds = evidence_near_border(part, near, weight, border, np)
    return Evidence(box, np.asarray(odds, np.float32), -np.inf)


def margin_of(confidence: float | None) -> float:
    """Return the log-odds of a mask's pixels that are right with this probability."""
    return MARGIN if confidence is None else float(np.log(confidence / (1 - confidence)))


def evidence_near_border(mask: Any, soft: Any, weight: Any, border: float, xp: Any) -> Any:
    """Return the log-odds of masks (..., H, W) near their borders, infinite elsewhere.

    By the distance from the border, times a `weight`, or by what probabilities say (`soft`). `xp`
    is numpy or torch.
    """
    reach = int(np.ceil(border)) + 1
    inner = _distance(mask, int(np.ceil(border / THICK)) + 1, xp)
    distance = inner + _distance(~mask, reach, xp) - 0.5
    if soft is None:
        size = weight * (NEAR + FAR * (distance / border) ** 2)
        odds = xp.where(mask, size, -size)
    else:
        odds = xp.clip(soft, -NEAR - FAR, NEAR + FAR)
    core = xp.clip(THICK * _largest_near(inner, reach - 1, xp), 1.0, border)
    odds = xp.where(mask & (distance > core), np.inf, odds)
    return xp.where(~mask & (distance > border), -np.inf, odds)


def _of_box(part: Bools, border: float) -> FloatArray:
    """Return the log-odds of pixels by a box: none at its sides, and more towards its centre."""
    depth = _distance(part, max(part.shape))
    share = depth / max(depth.max(initial=0.0), 1.0)
    odds = (NEAR + FAR) * (2 * share - 0.5)
    away = _distance(~part, int(np.ceil(border)) + 1) > border
    return np.where(part, odds, np.where(away, -np.inf, -NEAR - FAR)).astype(np.float32)


def _around(mask: Bools, more: int) -> tuple[slice, slice]:
    """Return the box of a mask, some pixels larger; an empty one where there is none."""
    x, y, width, height = box_of(mask)
    return (
        slice(max(0, y - more), min(mask.shape[0], y + height + more if height else 0)),
        slice(max(0, x - more), min(mask.shape[1], x + width + more if width else 0)),
    )


def _largest_near(values: Any, reach: int, xp: Any = np) -> Any:
    """Return the largest value in a square of `reach` pixels around each.

    Examples
    --------
    >>> _largest_near(np.array([[1, 0, 0, 5]], np.float32), 1)
    array([[1., 1., 5., 5.]], dtype=float32)
    """
    for _ in range(2):
        values = _gathered(xp.maximum, values, reach, lambda _: 0).swapaxes(-1, -2)
    return values


def _distance(mask: Any, most: int, xp: Any = np) -> Any:
    """Return the distance of masks' pixels from the nearest pixel outside, up to `most` + 1.

    0 outside. Beyond the array everything is as its edge is.

    Examples
    --------
    >>> _distance(np.array([[False, True, True, True]]), 2)
    array([[0., 1., 2., 3.]], dtype=float32)
    """
    far = xp.asarray(mask, dtype=xp.float32) * (most + 1)
    along = _gathered(xp.minimum, far, most, lambda step: step) ** 2
    across = _gathered(xp.minimum, along.swapaxes(-1, -2), most, lambda step: step * step)
    return xp.clip(xp.sqrt(across.swapaxes(-1, -2)), 0, most + 1)


def _gathered(least: Any, values: Any, reach: int, cost: Callable[[int], int]) -> Any:
    """Return the least (or largest) of values up to `reach` away along the last axis, and a cost.

    `cost` is a function of the distance.
    """
    out = values + 0
    for step in range(1, min(reach, values.shape[-1] - 1) + 1):
        moved = values + cost(step) if cost(step) else values
        least(out[..., step:], moved[..., :-step], out=out[..., step:])
        least(out[..., :-step], moved[..., step:], out=out[..., :-step])
    return out
