"""The way in of ``refine``: every array is scanned once; what is probably not meant is said."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest

from densecrf import ArgumentWarning, Bilateral, DenseCRF, validation
from densecrf.refinement import build

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (20, 24, 3), dtype=np.uint8)
P = RNG.dirichlet(np.full(4, 0.3), (20, 24))


def test_every_array_is_scanned_once(monkeypatch):
    scanned = Counter()
    plain = validation.check_finite

    def count(name, array):
        scanned[name] += 1
        return plain(name, array)

    for module in ("validation", "model.reading", "model.unaries", "model.kernels", "model.crf"):
        monkeypatch.setattr(f"densecrf.{module}.check_finite", count, raising=False)
    build(IMAGE / 255, P, model="pydensecrf")
    assert scanned == {"image": 1, "probabilities": 1}


def test_kernels_are_checked_once(monkeypatch):
    checked = []
    plain = Bilateral.check
    monkeypatch.setattr(Bilateral, "check", lambda *given: checked.append(1) or plain(*given))
    build(IMAGE, P).pairwise  # noqa: B018 - builds the filters
    assert len(checked) == 1


# --- probably not what was meant ------------------------------------------------


def silent(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


def test_probabilities_given_as_energies_are_warned_of():
    with pytest.warns(ArgumentWarning, match=r"unary: .*use densecrf.*from_probabilities") as heard:
        DenseCRF(np.moveaxis(P, -1, 0))
    assert [each.filename for each in heard] == [__file__]


@pytest.mark.parametrize(
    "unary", [-np.log(np.moveaxis(P, -1, 0)), np.eye(2)[:, [0, 1, 0]], np.full((2, 3), 0.5)]
)
def test_energies_are_not_warned_of(unary):
    silent(lambda: DenseCRF(unary))


def test_models_from_probabilities_are_not_warned_of():
    silent(lambda: DenseCRF.from_probabilities(P, axis=-1))
    silent(lambda: build(IMAGE, P))


def test_images_from_0_to_1_are_warned_of():
    with pytest.warns(ArgumentWarning, match="image: values from .*: give 255") as heard:
        Bilateral(IMAGE / 255, 80, 13)
    assert [each.filename for each in heard] == [__file__]


def test_the_facade_warns_of_images_from_0_to_1():
    from densecrf.drop_in.pydensecrf.densecrf import DenseCRF2D

    crf = DenseCRF2D(24, 20, 4)
    with pytest.warns(ArgumentWarning, match="give 255") as heard:
        crf.addPairwiseBilateral(80, 13, IMAGE / 255, 10)
    assert [each.filename for each in heard] == [__file__]


@pytest.mark.parametrize(
    ("image", "sigma_color"), [(IMAGE, 13), (IMAGE / 255, 0.05), (np.zeros((20, 24)), 13)]
)
def test_other_images_are_not_warned_of(image, sigma_color):
    silent(lambda: Bilateral(image, 80, sigma_color))
    silent(lambda: build(IMAGE / 255, P))
