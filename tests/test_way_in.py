"""The walk of ``refine``: few files, each step once, every array scanned once."""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import densecrf
from densecrf import ArgumentWarning, Bilateral, DenseCRF, validation
from densecrf.refinement import build

PACKAGE = Path(densecrf.__file__).parent
RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (20, 24, 3), dtype=np.uint8)
P = RNG.dirichlet(np.full(4, 0.3), (20, 24))
THREE = RNG.dirichlet(np.full(3, 0.3), (20, 24))


def walk(call):
    """Return how often each file of the package is entered from another one."""
    entered: Counter[str] = Counter()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        caller = frame.f_back and frame.f_back.f_code.co_filename
        if event == "call" and PACKAGE in path.parents and caller != str(path):
            entered[path.relative_to(PACKAGE).as_posix()] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_the_way_in_visits_each_file_once():
    fixed = {"model": "pydensecrf"}  # no label costs, for which the default filters
    build(IMAGE, P, **fixed)  # loads the modules
    entered = walk(lambda: build(IMAGE, P, **fixed))
    del entered["validation.py"]  # the checks, which every step calls
    assert set(entered) == {
        "refinement.py",
        "presets.py",
        "unaries.py",
        "kernels.py",
        "model.py",
    }


def test_the_walk_is_the_one_on_the_page_of_the_architecture():
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text("utf-8")
    told = page[page.index("**The walk, counted.**") :].split("\n\n")[0]
    number = int(re.search(r"visits (\d+)\s+files", told)[1])
    listed = {f"{name}.py" for name in re.findall(r"`([a-z_/]+)`", told)}
    densecrf.refine(IMAGE, THREE)
    visited = set(walk(lambda: densecrf.refine(IMAGE, THREE)))
    assert listed == visited
    assert number == len(visited)


def test_every_array_is_scanned_once(monkeypatch):
    scanned = Counter()
    plain = validation.check_finite

    def count(name, array):
        scanned[name] += 1
        return plain(name, array)

    for module in ("validation", "unaries", "kernels", "model"):
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
    from densecrf.pydensecrf.densecrf import DenseCRF2D

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
