"""Labelled images to learn from, loaded when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from densecrf.model.parameters import Parameters
from densecrf.model.unaries import read_void, whole_numbers
from densecrf.refinement import build
from densecrf.validation import FloatArray, as_real_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from densecrf.model.kernels import Bilateral
    from densecrf.model.resolution import Measured

__all__ = ["Example", "checked_truth", "make_examples"]

POTTS = Parameters()  # reads the input; its numbers are not used


@dataclass(frozen=True, eq=False)
class Example:
    """An image with the unaries of its pixels and their true labels."""

    name: str  # for messages
    truth: npt.NDArray[np.int64]  # (*spatial), -1 where there is none
    load: Callable[[], tuple[FloatArray, npt.NDArray[Any]]]  # unaries, and colours from 0 to 255
    measured: Measured | None = None  # the resolution of the scores


def make_examples(
    samples: Iterable[Any], void: Any = "auto", **reading: Any
) -> tuple[list[Example], int]:
    """Return examples from (image, probabilities, true labels), and the number of labels.

    Raises
    ------
    ValueError
        With the sample and the error.
    """
    examples: list[Example] = []
    counts: set[int] = set()
    for number, sample in enumerate(samples):
        name = f"samples[{number}]"
        try:
            image, probabilities, truth = sample
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: give (image, probabilities, true labels)") from error
        try:
            crf = build(image, probabilities, model=POTTS, **reading)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        counts.add(len(crf.unary))
        pixels = cast("Bilateral", crf.kernels[1]).image
        unary = crf.unary.reshape(len(crf.unary), *crf.shape)
        labels = checked_truth(name, truth, crf.shape, len(unary), void)
        if labels is not None:
            examples.append(Example(name, labels, partial(_given, unary, pixels), crf.measured))
    if len(counts) > 1:
        raise ValueError(f"samples: they have {sorted(counts)} labels; give samples of one number")
    if not examples:
        raise ValueError("samples: all true labels are void; give some with labels")
    return examples, counts.pop()


def _given(unary: FloatArray, image: npt.NDArray[Any]) -> tuple[FloatArray, npt.NDArray[Any]]:
    """Return what is in memory."""
    return unary, image


def checked_truth(
    name: str, truth: Any, shape: tuple[int, ...], labels: int, void: Any
) -> npt.NDArray[np.int64] | None:
    """Return true labels with -1 for void, None where all are void, or refuse them."""
    array = as_real_array("truth", truth)
    if array.shape != shape:
        raise ValueError(f"{name}: true labels of shape {array.shape} for {shape} pixels")
    try:
        index, empty = read_void(whole_numbers("truth", array), labels, void)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    known = ~np.isin(index, empty) & (index >= 0)
    if not known.any():
        return None
    if index[known].max() >= labels:
        raise ValueError(
            f"{name}: true label {index[known].max()} is not among the {labels} labels of the "
            f"probabilities; void is {empty}"
        )
    return np.where(known, index, -1)
