"""The fuzzer finds what is planted: its stage of the checks can fail."""

import dataclasses
import importlib
import sys
import warnings
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


def test_brute_force_finds_labels_that_are_wrongly_proven(checks, solved):
    crf, result = solved
    energies = checks.Energies(crf)
    table = checks.every_energy(energies)
    every = np.ones(result.labels.shape, np.int32)
    wrong = dataclasses.replace(result, labels=1 - result.labels, possible=every)
    found = list(checks.against_brute_force(energies, wrong, table))
    assert any("stated as proven" in text for text in found)
    found = list(
        checks.against_brute_force(energies, dataclasses.replace(result, possible=0 * every), table)
    )
    assert any("ruled out" in text for text in found)


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


@pytest.fixture
def doors(monkeypatch):
    """Return a function that runs the cases of a door, as (module, function, seeds)."""
    monkeypatch.syspath_prepend(str(FUZZ))
    before = set(sys.modules)

    def run(module, function, seeds):
        run_one = getattr(importlib.import_module(module), function)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return [text for seed in seeds for text in run_one(np.random.default_rng([seed, 1]))]

    yield run
    for name in {path.stem for path in FUZZ.glob("*.py")} & set(sys.modules) - before:
        del sys.modules[name]


def test_files_are_read_as_they_were_written_and_a_wrong_number_is_found(doors, monkeypatch):
    assert doors("formats", "run_format", range(60)) == []
    right = densecrf.io.read_image
    monkeypatch.setattr(densecrf.io, "read_image", lambda *a, **k: right(*a, **k) + np.uint8(1))
    assert any("other numbers" in text for text in doors("formats", "run_format", range(60)))


def test_calls_of_pydensecrf_are_the_original_s_and_others_are_found(doors, monkeypatch):
    pytest.importorskip("pydensecrf")
    from densecrf.drop_in.pydensecrf import densecrf as ours

    assert doors("facades", "run_facade", range(20)) == []
    right = ours.DenseCRF2D.inference
    monkeypatch.setattr(
        ours.DenseCRF2D, "inference", lambda self, n: np.array(right(self, n)) * 1.01
    )
    assert any("differ by" in text for text in doors("facades", "run_facade", range(20)))


def test_tiles_have_the_energy_of_memory_and_another_is_found(doors, monkeypatch):
    from densecrf import large

    assert doors("tiled", "run_tiled", range(4)) == []
    right = large.refine
    monkeypatch.setattr(
        large, "refine", lambda *a, **k: right(*a, **{**k, "sigma": 1.5 * k["sigma"]})
    )
    assert any("in memory" in text for text in doors("tiled", "run_tiled", range(4)))
