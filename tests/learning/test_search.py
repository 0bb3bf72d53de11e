"""The search for a model: it moves on evidence, and not without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from densecrf.learning.search import Candidate, search, surely_better
from densecrf.model.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT = Candidate(PRESETS["default"])


def last(found: Iterable[Candidate]) -> Candidate:
    """Return what a search ends with."""
    return list(found)[-1]


def confusions(right: np.ndarray) -> list[np.ndarray]:
    """Return matrices of 100 pixels per image, of which so many are right."""
    return [np.array([[n, 100 - n], [100 - n, n]]) for n in right]


def test_a_gain_on_all_images_is_followed_to_its_end() -> None:
    def judge(candidate: Candidate) -> list[np.ndarray]:
        return confusions(np.arange(70, 80) - 2 * abs(np.log2(2 * candidate.strength)))

    assert abs(last(search(DEFAULT, judge)).strength - 0.5) < 1e-9


def test_another_reach_is_taken() -> None:
    def judge(candidate: Candidate) -> list[np.ndarray]:
        return confusions(np.arange(60, 70) + 3 * (1.5 < candidate.reach < 2))

    assert last(search(DEFAULT, judge)).model().sigma_xy == 1.6 * DEFAULT.start.sigma_xy


def test_a_gain_on_one_image_of_five_is_not_followed() -> None:
    def judge(candidate: Candidate) -> list[np.ndarray]:
        lucky = 4 if candidate != DEFAULT else 0
        return confusions(
            np.array([70 + lucky, 70, 71, 72, 70]) - np.array([0, 1, 1, 1, 0]) * (lucky > 0)
        )

    assert list(search(DEFAULT, judge)) == [DEFAULT]


def test_what_gains_in_one_and_loses_in_the_other_is_no_better() -> None:
    before = [np.array([[900, 0], [50, 50]])] * 4
    after = [np.array([[960, 40], [90, 10]])] * 4
    assert not surely_better(after, before)


def test_few_images_must_gain_more() -> None:
    few = confusions(np.array([72, 70, 72, 69, 71])), confusions(np.array([70, 70, 70, 70, 71]))
    many = few[0] * 6, few[1] * 6
    assert not surely_better(*few)
    assert surely_better(*many)
