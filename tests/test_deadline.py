"""Time limits and Ctrl-C inside starts, inner loops, filter calls and construction."""

import time
import warnings

import numpy as np
import pytest

import densecrf
import densecrf.deadline
from densecrf.pairwise import Pairwise

MIXED = 5  # dual points of prox-lp are mixtures of up to T = 5


@pytest.fixture
def clock(monkeypatch):
    """Let the time run out, or Ctrl-C be pressed, at the k-th check of the deadline."""

    class Clock:
        def __init__(self):
            self.checks, self.last, self.press = 0, None, None

        def __call__(self):
            limited = densecrf.deadline._deadline.get() < float("inf")
            self.checks += limited
            if self.last is None or self.checks <= self.last:
                return 0.0
            if self.press is not None and limited and self.checks == self.last + 1:
                raise self.press
            return 1e12 if self.press is None else 0.0

    clock = Clock()
    monkeypatch.setattr(densecrf.deadline, "perf_counter", clock)
    return clock


def model(engine="auto", n_labels=4, **options):
    rng = np.random.default_rng(5)
    image = rng.random((8, 9, 3)) * 255
    kernels = [densecrf.Spatial(2.0, 1.0), densecrf.Bilateral(image, 5.0, 60.0, 2.0)]
    u = rng.standard_normal((n_labels, 8, 9)) * 2
    return densecrf.DenseCRF(u, kernels, filter=engine, **options)


def check(result, crf):
    """Whatever ended the run, the result is a labelling with what is known of it."""
    assert result.labels.shape == crf.shape
    assert result.marginals.min() >= 0
    np.testing.assert_allclose(result.marginals.sum(0), 1, atol=1e-4)
    least = crf.unary.argmin(0).reshape(crf.shape)
    if "nothing was scored" in result.message:
        np.testing.assert_array_equal(result.labels, least)
        assert result.lower_bound is None
    if np.isfinite(result.energy):
        assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)
    assert str(result)
    assert "NaN" not in result.to_json()
    assert "Infinity" not in result.to_json()


def solve(crf, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return crf.solve(method, time_limit=1e6, **options)


def cut_short(clock, method, ending, points, engine="auto", **options):
    """Check runs that end at some of the checks that a whole run makes."""
    clock.checks, clock.last = 0, None
    solve(model(engine), method, **options)
    count = clock.checks
    for last in sorted({*range(0, count, max(1, count // points)), count - 1}):
        crf = model(engine)
        clock.checks, clock.last = 0, last
        result = solve(crf, method, **options)
        if last < count // 2 or not result.converged:
            assert result.message.startswith(ending)
            assert not result.converged
        clock.last = None
        check(result, crf)


CASES = [(method, {}) for method in densecrf.METHODS]
CASES += [("prox-lp", {"inner": "multiplicative"}), ("lp", {"init": "prox-lp-acc"})]


@pytest.mark.parametrize(("method", "options"), CASES)
def test_the_time_may_be_up_anywhere(clock, method, options):
    cut_short(clock, method, "time limit of 1e+06 s reached", 10, **options)


@pytest.mark.parametrize("method", ["mf5", "prox-lp", "lp"])
def test_and_between_blocks_of_the_exact_filter(clock, method):
    cut_short(clock, method, "time limit of 1e+06 s reached", 10, "exact")


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_ctrl_c_may_come_anywhere(clock, method):
    clock.press = KeyboardInterrupt()
    cut_short(clock, method, "interrupted", 5)


@pytest.mark.parametrize("method", ["mf5", "dc-neg", "prox-lp", "lp"])
def test_on_torch_tensors_too(clock, method):
    pytest.importorskip("torch")
    cut_short(clock, method, "time limit of 1e+06 s reached", 5, device="cpu")


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_filter_calls_after_the_limit(clock, method, monkeypatch):
    """Past the limit: one plain filter call for the energy, one ordered one for the bound."""
    later = []
    names = ("apply", "respond", "ordered", "pairs_double", "ordered_double")
    for name in names:
        real = getattr(Pairwise, name)

        def call(self, *given, real=real, name=name, **options):
            if clock.last is not None and clock.checks > clock.last:
                later.append(name)
            return real(self, *given, **options)

        monkeypatch.setattr(Pairwise, name, call)
    crf = model()
    solve(crf, method)
    count = clock.checks
    for last in range(0, count, max(1, count // 12)):
        clock.checks, clock.last = 0, last
        later.clear()
        solve(crf, method)
        clock.last = None
        ordered = MIXED if "prox" in method else 1
        assert later.count("pairs_double") <= 1
        assert later.count("ordered_double") <= ordered
        assert len(later) <= 1 + ordered


def test_a_used_model_has_the_energy_of_the_argmin(clock):
    crf = model()
    crf.energy(np.zeros(crf.shape, int))
    clock.last = clock.checks
    result = solve(crf, "lp")
    assert "nothing was scored" in result.message
    assert result.energy == crf.energy(crf.unary.argmin(0))


def test_without_the_filters_the_energy_is_not_known():
    result = model().solve("lp", time_limit=0)
    assert result.energy == float("inf")
    assert result.gap is None
    assert "energy       not evaluated" in str(result)
    assert result.to_dict()["energy"] is None


def test_construction_ends_at_the_limit():
    rng = np.random.default_rng(0)
    image = rng.random((500, 500, 3)) * 255  # noise: as many lattice points as there can be
    crf = densecrf.DenseCRF(np.zeros((2, 500, 500)), [densecrf.Bilateral(image, 5.0, 5.0)])
    result = crf.solve("lp", time_limit=0.02, threads=1)
    assert "nothing was scored" in result.message
    assert "pairwise" not in vars(crf)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_call_that_is_cut_ends_quietly(threads):
    """The core asks more than once while its threads come to an end."""
    u = np.random.default_rng(0).standard_normal((21, 700, 700)).astype(np.float32)
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(3.0, 1.0)])
    crf.energy(np.zeros(crf.shape, int))
    for limit in (0.06, 0.08, 0.12, 0.2):
        result = crf.solve("mf", time_limit=limit, threads=threads, iterations=10**6, tolerance=0.0)
        assert result.message.startswith("time limit")


def test_multiplicative_updates_keep_the_limit():
    u = np.random.default_rng(0).random((5, 20, 20)) * 1e5
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(3.0, 1.0)])
    started = time.perf_counter()
    crf.solve("prox-lp", inner="multiplicative", lam=2.0, time_limit=0.3)
    assert time.perf_counter() - started < 5  # one update takes far less than a second


def test_a_callback_may_take_its_time():
    crf = model()
    energies = []

    def callback(outcome):
        time.sleep(1.0)
        energies.append(crf.energy(outcome.labels))

    result = crf.solve("mf", time_limit=1.0, tolerance=0.0, callback=callback)
    assert result.message == "time limit of 1 s reached"
    assert len(energies) == result.iterations == 1
