"""What the front door promises: names, starting points, limits, interruption, results."""

import json
import signal
import threading
import warnings

import numpy as np
import pytest

import densecrf
import densecrf.deadline
import densecrf.problem.projections

LONG = {"iterations": 10**9, "tolerance": 0.0}


def stripes(height):
    """Return a model of three stripes, for which no constant labelling is good."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, size=(height, 24, 3))
    image[:, 12:] //= 4
    unary = rng.normal(size=(4, height, 24))
    unary[0, :, :8] -= 1
    unary[1, :, 8:16] -= 1
    unary[2, :, 16:] -= 1
    kernels = [densecrf.Spatial(2, 1.0), densecrf.Bilateral(image, 8, 40, 2.0)]
    return densecrf.DenseCRF(unary, kernels)


@pytest.fixture(scope="module")
def crf():
    return stripes(18)


@pytest.fixture
def overruled():
    """A model whose pairwise weights dominate: some constant labelling is best."""
    unary = np.random.default_rng(0).normal(size=(3, 8, 8))
    return densecrf.DenseCRF(unary, [densecrf.Spatial(3, 50.0)], "none", "exact")


@pytest.mark.parametrize(
    ("wrong", "right"), [("dc_neg", "dc-neg"), ("MF5", "mf5"), ("qpcccp", "qp-cccp")]
)
def test_unknown_method_names_the_closest(crf, wrong, right):
    with pytest.raises(ValueError, match=rf"method='{wrong}'.*Did you mean '{right}'"):
        crf.solve(wrong)


def test_unknown_option_names_the_closest(crf):
    with pytest.raises(ValueError, match=r"option of method 'mf'.*Did you mean 'tolerance'"):
        crf.solve("mf", tolerence=1e-3)


def test_unknown_init_names_the_closest(crf):
    with pytest.raises(ValueError, match=r"init='dcneg'.*Did you mean 'dc-neg'"):
        crf.solve("mf", init="dcneg")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_init_that_is_not_finite_is_refused(crf, bad):
    y = np.full((4, 18, 24), 0.25)
    y[1, 2, 3] = bad
    with pytest.raises(ValueError, match=r"init: 1 of 1728 values are not finite.*\(1, 2, 3\)"):
        crf.solve("mf", init=y)


def test_init_of_a_wrong_shape_is_refused(crf):
    with pytest.raises(ValueError, match=r"init: shape \(18, 24, 4\); give \(4, 18, 24\)"):
        crf.solve("mf", init=np.full((18, 24, 4), 0.25))


def test_infeasible_init_is_projected_with_a_warning(crf):
    y = np.random.default_rng(1).normal(size=(4, 18, 24))
    with pytest.warns(UserWarning, match="init: not in the product of simplices"):
        result = crf.solve("mf", init=y)
    nearest = densecrf.problem.projections.simplex(y.reshape(4, -1).astype(np.float32))
    assert result.trace.current_energy[0] == pytest.approx(crf.energy(nearest.argmax(0)), rel=1e-5)


@pytest.mark.parametrize("kind", ["labels", "flat labels", "marginals", "result", "method"])
def test_every_kind_of_init(crf, kind):
    first = crf.solve("mf5")
    init = {
        "labels": first.labels,
        "flat labels": first.labels.ravel(),
        "marginals": first.marginals.astype(np.float64),
        "result": first,
        "method": "mf5",
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = crf.solve("dc-neg", init=init)
    assert result.trace.energy[0] == pytest.approx(first.energy, rel=1e-6)
    assert result.energy <= first.energy


def test_labels_out_of_range_as_init_are_refused(crf):
    with pytest.raises(ValueError, match=r"labels: value 4 is outside 0 … 3"):
        crf.solve("mf", init=np.full((18, 24), 4))


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_no_time_at_all_returns_the_start(crf, method):
    crf.energy(np.zeros(crf.shape, int))  # builds the filters, or there is no time for the energy
    result = crf.solve(method, time_limit=0)
    assert not result.converged
    assert "time limit of 0 s reached" in result.message
    assert result.iterations == 0
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)


def test_time_limit_ends_a_long_run(crf, monkeypatch):
    moment = [0.0]
    monkeypatch.setattr(densecrf.deadline, "perf_counter", lambda: moment[0])

    def a_second_each(_):
        moment[0] += 1.0

    result = crf.solve("mf", time_limit=7.0, callback=a_second_each, **LONG)
    assert not result.converged
    assert result.message == "time limit of 7 s reached"
    assert result.iterations == result.seconds == 7


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_no_iterations_returns_the_start(crf, method):
    result = crf.solve(method, max_iterations=0, init="unary")
    assert (result.iterations, len(result.trace), result.converged) == (0, 1, False)
    assert result.message == "iteration limit of 0 reached"
    assert result.energy == pytest.approx(crf.solve("unary").energy, rel=1e-6)


def test_iteration_limit(crf):
    result = crf.solve("mf", max_iterations=3)
    assert (result.iterations, len(result.trace), result.converged) == (3, 4, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_limit", -1),
        ("gap", -0.1),
        ("gap", np.nan),
        ("gap", 1),
        ("gap", 5.0),
        ("max_iterations", -1),
        ("threads", 0),
    ],
)
def test_senseless_limits_are_refused(crf, name, value):
    with pytest.raises(ValueError, match=name):
        crf.solve("mf", **{name: value})


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("qp", "iterations", -1),
        ("qp-cccp", "inner_iterations", 0),
        ("dc-neg", "tolerance", np.nan),
        ("sg-lp", "levels", 1),
        ("cg-lp", "levels", 10**30),
        ("prox-lp", "levels", 10**30),
        ("cg-lp", "order", "softt"),
        ("sg-lp", "label_threshold", 1.5),
    ],
)
def test_senseless_options_are_refused(crf, method, name, value):
    with pytest.raises(ValueError, match=name):
        crf.solve(method, init="unary", **{name: value})


def test_gap_stops_a_method_with_a_certificate(crf):
    reached = crf.solve("qp")
    asked = 1.1 * reached.gap
    result = crf.solve("qp", gap=asked, **LONG)
    assert result.converged
    assert result.gap <= asked
    assert result.iterations <= reached.iterations
    assert "at most the requested" in result.message


def test_gap_zero_runs_to_the_iteration_limit(crf):
    result = crf.solve("qp", gap=0, max_iterations=30, **LONG)
    assert result.iterations == 30
    assert not result.converged
    assert result.gap > 0


def test_callback_sees_every_iteration_and_may_stop(crf):
    seen = []

    def stop_at_four(outcome):
        seen.append((outcome.iterations, outcome.energy, outcome.lower_bound))
        return outcome.iterations == 4

    result = crf.solve("qp", callback=stop_at_four, **LONG)
    assert [row[0] for row in seen] == [1, 2, 3, 4]
    assert (result.energy, result.lower_bound) == pytest.approx(seen[-1][1:], rel=1e-6)
    assert (result.message, result.converged) == ("stopped by the callback", False)


def test_what_a_callback_raises_comes_through(crf):
    def fail(outcome):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        crf.solve("mf", callback=fail)


@pytest.fixture
def interrupt(interruptible):
    """Press Ctrl-C from another thread, once the first iteration is done."""
    pressed = []

    def press(outcome):
        if outcome.iterations == 1:
            thread = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
            thread.start()
            pressed.append(thread)

    yield press
    for thread in pressed:
        thread.join()


def test_ctrl_c_returns_the_best_so_far(crf, interrupt):
    result = crf.solve("mf", callback=interrupt, **LONG)
    assert not result.converged
    assert "interrupted" in result.message
    assert result.iterations >= 1
    assert result.energy == min(result.trace.energy)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)


def test_ctrl_c_while_another_method_finds_the_start(crf, monkeypatch):
    from densecrf.solvers import registry

    def interrupted(problem, y):
        yield densecrf.solvers.loop.Step(y)
        raise KeyboardInterrupt

    monkeypatch.setitem(registry.REGISTRY, "mf5", registry.Method(interrupted, "a stand-in"))
    result = crf.solve("dc-neg", init="mf5")
    assert not result.converged
    assert "interrupted" in result.message
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("method", densecrf.METHODS)
def test_same_bits_for_any_number_of_threads(crf, method):
    one, two, three = (crf.solve(method, threads=threads) for threads in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.marginals, other.marginals)
        assert one.trace.energy == other.trace.energy
        assert one.lower_bound == other.lower_bound


def test_warns_when_a_constant_labelling_is_better(overruled):
    with pytest.warns(UserWarning, match=r"constant labelling \d has energy .* weights dominate"):
        result = overruled.solve("unary")
    label, energy = result.best_constant
    assert energy == pytest.approx(overruled.energy(np.full((8, 8), label)), abs=1e-3)
    assert energy < result.energy


def test_no_warning_when_none_is(crf):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf.solve("dc-neg")


def test_print_says_what_people_ask(crf):
    text = str(crf.solve("qp"))
    for words in ("qp: 18 × 24 pixels", "of 4 labels used", "lower bound", "within", "% of the"):
        assert words in text
    assert "converged" in text.splitlines()[-1]
    assert "this method has no bound" in str(crf.solve("mf5"))


@pytest.mark.parametrize("arrays", [False, True])
def test_json_round_trip(crf, arrays):
    result = crf.solve("sg-lp", threads=1)
    back = json.loads(result.to_json(arrays=arrays))
    assert back == result.to_dict(arrays=arrays)
    assert back["energy"] == result.energy
    assert back["info"]["labels_kept"] == result.info["labels_kept"].tolist()
    assert len(back["trace"]["seconds"]) == len(result.trace)
    if arrays:
        np.testing.assert_array_equal(back["labels"], result.labels)
        np.testing.assert_array_equal(np.float32(back["marginals"]), result.marginals)


def test_trace_columns_agree(crf):
    trace = crf.solve("sg-lp").trace
    assert {len(column) for column in trace.to_dict().values()} == {len(trace)}
    assert trace.seconds == sorted(trace.seconds)
    assert trace.energy == list(np.minimum.accumulate(trace.current_energy))
    bounds = [b for b in trace.lower_bound if b is not None]
    assert bounds == sorted(bounds)


def test_progress_keeps_one_line_and_ends_it(crf, capsys):
    crf.solve("mf5", progress=True)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    assert shown.count("\r") == 5
    assert "mf5 ················ iteration 5" in shown


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("init", densecrf.METHODS)
def test_every_method_may_give_the_start(init, device):
    if device is not None:
        pytest.importorskip("torch")
    crf = stripes(4)
    for method in ("lp", "mf", "prox-lp-acc"):
        result = crf.solve(method, init=init, device=device)
        assert result.info["init"] == init
        assert result.converged
        assert np.isfinite(result.energy)
