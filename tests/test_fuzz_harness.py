"""The fuzzer finds what is planted: its stage of the checks can fail."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

import densecrf

FUZZ = Path(__file__).parents[1] / "tools" / "fuzz"


@pytest.fixture
def checks(monkeypatch):
    """Return the fuzzer's judgements, a module beside its `__main__`."""
    monkeypatch.syspath_prepend(str(FUZZ))
    import checks

    yield checks
    sys.modules.pop("checks", None)


@pytest.fixture
def solved():
    u = np.random.default_rng(0).standard_normal((2, 2, 3))
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(1.0, 0.5)])
    return crf, crf.solve("lp")


PLANTED = {
    "marginals off the simplex": lambda r: {"marginals": r.marginals * 1.01},
    "labels of shape": lambda r: {"labels": r.labels + 7},
    "asked again": lambda r: {"energy": r.energy + 1e-12},
    "above the energy": lambda r: {"lower_bound": r.energy + 1e-9},
    "no message": lambda _: {"message": ""},
    "bound nan": lambda _: {"lower_bound": float("nan")},
}


@pytest.mark.parametrize("text", PLANTED)
def test_what_is_planted_is_found(checks, solved, text):
    crf, result = solved
    wrong = dataclasses.replace(result, **PLANTED[text](result))
    assert any(text in found for found in checks.findings(crf, wrong))


def test_brute_force_finds_a_bound_above_the_optimum(checks, solved):
    crf, result = solved
    energies = checks.Energies(crf)
    table = checks.every_energy(energies)
    assert table[1].min() == pytest.approx(result.energy, rel=1e-14)
    assert not list(checks.against_brute_force(energies, result, table))
    wrong = dataclasses.replace(result, lower_bound=float(table[1].min()) + 1e-10)
    found = list(checks.against_brute_force(energies, wrong, table))
    assert any("above the optimum" in text for text in found)


def test_torch_bounds_are_judged_by_torch_energies_without_an_allowance(checks):
    pytest.importorskip("torch")
    crf = densecrf.DenseCRF(np.eye(2).reshape(2, 1, 2), [densecrf.Spatial(1.0, 1e4)])
    result = crf.solve("lp", device="cpu")
    energies = checks.Energies(crf, "cpu")
    table = checks.every_energy(energies)
    assert not list(checks.findings(crf, result, energies))
    assert not list(checks.against_brute_force(energies, result, table))
    wrong = dataclasses.replace(result, lower_bound=float(table[1].min()) * (1 + 1e-9))
    assert list(checks.against_brute_force(energies, wrong, table))
