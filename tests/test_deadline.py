"""Time limits and Ctrl-C inside starts, inner loops, filter calls and construction."""

import warnings
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import densecrf
import densecrf.deadline
from densecrf.native import core
from densecrf.operators.levels import Filter
from densecrf.operators.pairwise import Pairwise
from densecrf.problem.certificate import Costs, Mixture, lower_bound
from densecrf.problem.problem import problem_of


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
    kernels = kernels[:1] if engine == "grid" else kernels
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
    count, cut = clock.checks, 0
    for last in sorted({*range(0, count, max(1, count // points)), count - 1}):
        crf = model(engine)
        clock.checks, clock.last = 0, last
        result = solve(crf, method, **options)
        # Busy machines check more often: another run may end before this moment.
        if clock.checks > last and not result.converged:
            assert result.message.startswith(ending)
            cut += 1
        clock.last = None
        check(result, crf)
    assert cut


CASES = [(method, {}) for method in densecrf.METHODS]
CASES += [
    ("prox-lp", {"inner": "multiplicative", "K": 1, "T": 1}),
    ("lp", {"init": "prox-lp-acc"}),
]


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


FILTER_CALLS = {
    Pairwise: ("apply", "ordered", "apply_double", "ordered_double", "pairs_double"),
    core().LatticeSum: ("mass", "potts_icm_moves", "quadratic_step"),
    core().MeanField: ("step",),
    Filter: ("normalized",),
}
if find_spec("torch") is not None:
    from densecrf.operators.torch.pairwise import TensorPairwise as OnTensors

    FILTER_CALLS[OnTensors] = ("apply", "ordered", "apply_double", "ordered_double")


@pytest.fixture
def filter_calls(monkeypatch):
    """Call a function with the name of every filter call that was made, but for nested ones.

    One that ends at the deadline that it checks when it begins was not made.
    """
    listener = SimpleNamespace(depth=0, heard=None)

    def listened(name, real):
        def call(self, *given, **options):
            listener.depth += 1
            try:
                out = real(self, *given, **options)
            finally:
                listener.depth -= 1
            if listener.depth == 0 and listener.heard is not None:
                listener.heard(name)
            return out

        return call

    for owner, names in FILTER_CALLS.items():
        for name in names:
            monkeypatch.setattr(owner, name, listened(name, getattr(owner, name)))
    return listener


def matrix(n_labels=4):
    """Costs of pairs of labels that no tree has, with a diagonal."""
    mu = np.random.default_rng(2).random((n_labels, n_labels))
    return mu + mu.T


FILTERED = [(method, {}, {}) for method in densecrf.METHODS]
FILTERED += [(method, {}, {"compatibility": matrix()}) for method in ("mf5", "qp", "dc-neg")]
FILTERED += [(method, {}, {"engine": "exact"}) for method in ("mf", "prox-lp", "lp")]
FILTERED += [("prox-lp", {"warm": True, "tolerance": 1e-3}, {}), ("lp", {"init": "mf5"}, {})]
FILTERED += [(method, {}, {"engine": "grid"}) for method in ("mf5", "lp")]
FILTERED += [(method, {"device": "cpu"}, {}) for method in ("mf5", "prox-lp", "lp")]
FILTERED += [("lp", {"gap": 0.3}, {}), ("lp", {"callback": lambda _: None}, {})]


@pytest.mark.parametrize("press", [None, KeyboardInterrupt()], ids=["limit", "ctrl-c"])
@pytest.mark.parametrize(("method", "options", "kind"), FILTERED)
def test_one_filter_call_past_the_limit(clock, filter_calls, method, options, kind, press):
    """Wherever in a run the time is up or Ctrl-C is pressed, at most one filter call follows."""
    if "device" in options:
        pytest.importorskip("torch")
    later = []
    clock.press = press
    crf = model(**kind)
    solve(crf, method, **options)
    count = clock.checks

    def heard(name):
        if clock.last is not None and clock.checks > clock.last:
            later.append(name)

    filter_calls.heard = heard
    proven = 0
    moments = {*range(0, count, max(1, count // (3 if "device" in options else 6))), count - 1}
    for last in sorted(moments):
        later.clear()
        crf = crf if last % 2 else model(**kind)  # used before, or not
        clock.checks, clock.last = 0, last
        result = solve(crf, method, **options)
        clock.last = None
        assert len(later) <= 1, later
        check(result, crf)
        proven += result.lower_bound is not None
    if method in ("lp", "qp", "prox-lp"):
        assert proven


COSTS = {"apply": 1.0, "step": 1.0, "ordered": 2.0, "ordered_double": 6.0, "apply_double": 2.0}


@pytest.mark.parametrize("method", ["lp", "qp", "sg-lp", "prox-lp"])
def test_the_bound_is_evaluated_in_time(monkeypatch, filter_calls, method):
    """On a clock that filter calls move on, the end is within one of them past the limit."""
    moment = [0.0]
    monkeypatch.setattr(densecrf.deadline, "perf_counter", lambda: moment[0])

    def heard(name):
        moment[0] += COSTS.get(name, 0.5)

    filter_calls.heard = heard
    ended = []
    for limit in (30.0, 60.0, 100.0, 200.0):
        moment[0] = 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = model().solve(method, time_limit=limit, gap=0.0)
        under_way = 2.0  # a call of the iterations, which the core would cut
        assert moment[0] <= limit + under_way + COSTS["ordered_double"]
        if result.message.startswith("time limit"):
            ended.append(limit)
            assert moment[0] > limit / 2
            assert result.lower_bound is not None or not result.iterations
    assert ended


def test_a_mixture_is_cut_to_what_there_is_time_for():
    crf = model()
    result = crf.solve("prox-lp", keep_dual=True)
    problem = problem_of(crf)
    assert isinstance(result.dual, Mixture)
    left = iter([True, False])
    costs = Costs(problem, result.dual, lambda: next(left))
    assert len(costs.dual.parts) == 2 < len(result.dual.parts)
    assert lower_bound(problem, costs.dual) == costs.bound <= result.energy
    assert lower_bound(problem, result.dual.largest()) <= result.energy


def test_constants_are_left_out_where_they_would_need_the_filters(clock):
    crf = model(compatibility=matrix())
    clock.last = 0
    result = solve(crf, "mf")
    assert not crf.filters_built
    assert result.best_constant[1] == float("inf")
    assert "for scale" not in str(result)


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
    assert not crf.filters_built


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 4])
def test_a_call_that_is_cut_ends_quietly(threads):
    """The core asks more than once while its threads come to an end."""
    u = np.random.default_rng(0).standard_normal((21, 700, 700)).astype(np.float32)
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(3.0, 1.0)])
    crf.energy(np.zeros(crf.shape, int))
    for limit in (0.06, 0.08, 0.12, 0.2):
        result = crf.solve("mf", time_limit=limit, threads=threads, iterations=10**6, tolerance=0.0)
        assert result.message.startswith("time limit")


def test_multiplicative_updates_keep_the_limit(clock):
    """There would be a million of them: the time is up before any other step."""
    u = np.random.default_rng(0).random((5, 20, 20)) * 1e5
    crf = densecrf.DenseCRF(u, [densecrf.Spatial(3.0, 1.0)])
    start = crf.solve("mf5").labels
    clock.last = 1000
    result = solve(crf, "prox-lp", init=start, inner="multiplicative", lam=2.0)
    assert result.message.startswith("time limit")
    assert result.iterations <= 1
    assert clock.checks < 1100


def test_a_callback_may_take_its_time(monkeypatch):
    crf = model()
    energies = []
    moment = [0.0]
    monkeypatch.setattr(densecrf.deadline, "perf_counter", lambda: moment[0])

    def callback(outcome):
        moment[0] += 5.0
        energies.append(crf.energy(outcome.labels))

    result = crf.solve("mf", time_limit=1.0, tolerance=0.0, callback=callback)
    assert result.message == "time limit of 1 s reached"
    assert len(energies) == result.iterations == 1
