"""The fuzzer itself: it finds what is planted, and survives crashes and hangs."""

import dataclasses
import importlib.util
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import densecrf

FUZZ = Path(__file__).parents[1] / "tools" / "fuzz"


@pytest.fixture
def modules(monkeypatch):
    """The fuzzer's modules by name, which are beside its `__main__`."""
    monkeypatch.syspath_prepend(str(FUZZ))
    import cases
    import checks

    spec = importlib.util.spec_from_file_location("fuzz_main", FUZZ / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_main"] = main
    spec.loader.exec_module(main)
    yield {"cases": cases, "checks": checks, "main": main}
    for name in ("cases", "checks", "files", "hostile", "methods", "problems", "fuzz_main"):
        sys.modules.pop(name, None)


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
def test_what_is_planted_is_found(modules, solved, text):
    crf, result = solved
    wrong = dataclasses.replace(result, **PLANTED[text](result))
    assert any(text in found for found in modules["checks"].findings(crf, wrong))


def test_brute_force_finds_a_bound_above_the_optimum(modules, solved):
    crf, result = solved
    checks = modules["checks"]
    energies = checks.Energies(crf)
    table = checks.every_energy(energies)
    assert table[1].min() == pytest.approx(result.energy, rel=1e-14)
    assert not list(checks.against_brute_force(energies, result, table))
    wrong = dataclasses.replace(result, lower_bound=float(table[1].min()) + 1e-10)
    found = list(checks.against_brute_force(energies, wrong, table))
    assert any("above the optimum" in text for text in found)


def test_torch_bounds_are_judged_by_torch_energies_without_an_allowance(modules):
    pytest.importorskip("torch")
    crf = densecrf.DenseCRF(np.eye(2).reshape(2, 1, 2), [densecrf.Spatial(1.0, 1e4)])
    result = crf.solve("lp", device="cpu")
    checks = modules["checks"]
    energies = checks.Energies(crf, "cpu")
    table = checks.every_energy(energies)
    assert not list(checks.findings(crf, result, energies))
    assert not list(checks.against_brute_force(energies, result, table))
    wrong = dataclasses.replace(result, lower_bound=float(table[1].min()) * (1 + 1e-9))
    assert list(checks.against_brute_force(energies, wrong, table))


def test_a_seed_always_gives_the_same_case(modules):
    run_case = modules["cases"].run_case
    assert [run_case(seed) for seed in range(12)] == [run_case(seed) for seed in range(12)]


def crash_or_hang(pipe):
    pipe.send("ready")
    while (seed := pipe.recv()) is not None:
        if seed == 1:
            os._exit(11)
        if seed == 2:
            time.sleep(3000)
        pipe.send(({"solves": 1}, []))


def test_crashes_and_hangs_are_findings_and_the_rest_goes_on(modules, monkeypatch, capsys):
    main = modules["main"]
    monkeypatch.setattr(main, "work", crash_or_hang)
    monkeypatch.setattr(main, "HANG", 30.0)
    supervisor = main.Supervisor(0, 5, 3000.0)
    supervisor.serve()
    assert supervisor.done == {"cases": 5, "solves": 3}
    assert [text.split(":")[0] for text in supervisor.findings] == ["seed 1", "seed 2"]
    assert "crashes: exit status 11" in supervisor.findings[0]
    assert "hangs" in supervisor.findings[1]
    assert "seed 1" in capsys.readouterr().out
