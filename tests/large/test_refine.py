"""Whole runs in one process: certificates, outputs, going on after an interruption."""

import json
from functools import cache

import numpy as np
import pytest

from densecrf.large import IncompatibleRunError, refine, visits
from densecrf.large.rounds import TiledRun
from densecrf.refinement import build
from large_scenes import MODEL, crowd, in_memory, scene


@pytest.mark.parametrize("tile", [24, 40, 100])
def test_certificate_is_the_whole_image_s(tile):
    image, p = crowd()
    result = refine(image, p, tile=tile, model=MODEL, gap=5e-3, axis=0)
    crf = in_memory(image, p)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-6)
    assert result.converged
    assert result.gap <= 5e-3
    best = crf.solve("lp", gap=1e-3)
    assert result.lower_bound <= best.energy
    assert (best.labels != result.labels).mean() < 0.02
    assert result.gap_map.sum() == pytest.approx(result.gap, abs=1e-6)
    assert len(result.tiles) == result.gap_map.size


def test_two_labels_are_solved_exactly():
    image, p = crowd(labels=2)
    result = refine(image, p, tile=30, model=MODEL, gap=1e-4, axis=0)
    assert result.gap <= 1e-4


def test_default_model_follows_the_scores_of_the_whole_image():
    image, p = crowd()
    options = {"sigma_xy": 5, "sigma_color": 20}
    result = refine(image, p, tile=1000, gap=1e-2, axis=0, **options)
    crf = build(image, p, axis=0, **options)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-5)
    assert result.gap <= 1e-2


def test_mean_field_is_that_of_the_whole_image():
    image, p = crowd()
    result = refine(image, p, tile=24, model=MODEL, method="mf5", axis=0)
    expected = in_memory(image, p).solve("mf5")
    assert (result.labels == expected.labels).mean() > 0.999
    assert result.energy == pytest.approx(expected.energy, rel=1e-5)
    assert result.lower_bound is None


def test_constant_labelling_where_it_is_best():
    image, p = scene((20, 20), 2)
    p[0] = 0.6
    p[1] = 0.4
    p[:, 3, 3] = 0.3, 0.7
    result = refine(image, p, tile=12, model=MODEL, axis=0, max_iterations=20)
    assert not result.labels.any()
    assert result.energy == pytest.approx(result.best_constant[1])


def test_volume_and_mask():
    image, p = crowd((10, 30, 26), 2)
    mask = np.ones((10, 30, 26), bool)
    mask[:, :12] = False
    result = refine(image, p, tile=(10, 12, 14), model=MODEL, mask=mask, axis=0, gap=5e-3)
    assert (result.labels[~mask] == 255).all()
    assert set(np.unique(result.labels[mask])) <= {0, 1}
    assert result.gap <= 5e-3


@pytest.mark.parametrize("name", ["labels.npy", "labels.zarr", "labels.tif"])
def test_outputs(tmp_path, name):
    pytest.importorskip("zarr" if name.endswith("zarr") else "rasterio")
    image, p = crowd()
    expected = refine(image, p, tile=30, model=MODEL, axis=0, gap=5e-3).labels
    result = refine(image, p, tile=30, model=MODEL, axis=0, gap=5e-3, out=tmp_path / name)
    np.testing.assert_array_equal(result.labels[3:40, 10:], expected[3:40, 10:])
    np.testing.assert_array_equal(np.asarray(result.labels), expected)
    assert [path.name for path in tmp_path.iterdir()] == [name]


class StopError(Exception):
    pass


MANY_ROUNDS = {"tile": 30, "model": MODEL, "axis": 0, "gap": 1e-4}


@cache
def undisturbed():
    return refine(*crowd(), **MANY_ROUNDS)


@pytest.mark.parametrize("at", [2, 9, 14, 27, 40, 100])
def test_an_interrupted_run_goes_on(tmp_path, at):
    for name, array in zip(("image.npy", "p.npy"), crowd(), strict=True):
        np.save(tmp_path / name, array)
    inputs = (tmp_path / "image.npy", tmp_path / "p.npy")
    options, expected = MANY_ROUNDS, undisturbed()
    calls = []

    def failing(stage, done, count):
        calls.append(stage)
        if len(calls) == at:
            raise StopError

    out = tmp_path / "labels.npy"
    with pytest.raises(StopError):
        refine(*inputs, **options, out=out, progress=failing)
    assert not out.exists()
    made = []
    result = refine(*inputs, **options, out=out, progress=lambda *each: made.append(each))
    np.testing.assert_array_equal(np.load(out), expected.labels)
    assert (result.energy, result.lower_bound) == (expected.energy, expected.lower_bound)
    stages = {stage: count for stage, _, count in made}
    assert "masses" not in stages or at <= 9


def test_another_run_s_files_are_refused(tmp_path):
    image, p = crowd()
    out = tmp_path / "labels.npy"

    def fail(*_):
        raise StopError

    with pytest.raises(StopError):
        refine(image, p, tile=30, model=MODEL, axis=0, gap=5e-3, out=out, progress=fail)
    with pytest.raises(IncompatibleRunError, match=r"labels\.npy\.parts.*other method"):
        refine(image, p, tile=30, model=MODEL, axis=0, out=out, gap=1e-4)
    with pytest.raises(IncompatibleRunError, match="other image"):
        refine(image + 1, p, tile=30, model=MODEL, axis=0, gap=5e-3, out=out)
    assert refine(image, p, tile=30, model=MODEL, axis=0, gap=5e-3, out=out).converged


def test_a_finished_tile_is_not_made_again(tmp_path, monkeypatch):
    image, p = crowd()
    out = tmp_path / "labels.npy"

    def fail(stage, done, count):
        if stage == "iterates-1" and done == 2:
            raise StopError

    options = MANY_ROUNDS | {"out": out}
    with pytest.raises(StopError):
        refine(image, p, **options, progress=fail)
    made = []
    original = visits.iterate
    monkeypatch.setattr(visits, "iterate", lambda *args: made.append(args[1:3]) or original(*args))
    refine(image, p, **options)
    assert (1, 2) in made
    assert not {(0, 0), (1, 0), (1, 1)} & set(made)


def test_record_is_json():
    image, p = crowd((20, 24), 2)
    result = refine(image, p, tile=12, model=MODEL, axis=0, gap=5e-3)
    assert json.loads(json.dumps(result.to_dict()))["gap"] == result.gap
    assert "20 × 24" in repr(result)


def test_a_better_bound_of_an_earlier_round_proves_no_pixels(monkeypatch):
    """Reduced costs belong to the bound of their own potentials."""
    image, p = crowd()
    options = {"tile": 32, "model": MODEL, "max_iterations": 40, "gap": 0.0, "axis": 0}
    plain = refine(image, p, **options)
    exact = in_memory(image, p).solve("lp", gap=0.0).lower_bound
    certified = TiledRun._certified

    def after_a_better_one(run, turn, before, known, iterations):
        return certified(run, turn, before, exact if iterations == 40 else known, iterations)

    monkeypatch.setattr(TiledRun, "_certified", after_a_better_one)
    found = refine(image, p, **options)
    assert found.lower_bound == exact > plain.lower_bound
    assert found.proven_share == plain.proven_share < 1


def test_a_run_goes_on_after_a_certificate_that_missed_its_gap(tmp_path):
    image, p = crowd(labels=5)
    options = {"tile": 30, "model": MODEL, "axis": 0, "gap": 1e-8, "max_iterations": 60}
    seen = []
    refine(image, p, **options, progress=lambda stage, done, _: seen.append((stage, done)))
    certificates = [stage for stage, done in seen if stage.startswith("certificate") and done == 1]
    assert len(certificates) > 1
    after = seen.index((certificates[0], 1)) + 6
    expected = refine(image, p, **options)
    calls = []

    def stop(*_):
        calls.append(1)
        if len(calls) == after:
            raise StopError

    with pytest.raises(StopError):
        refine(image, p, **options, out=tmp_path / "labels.npy", progress=stop)
    found = refine(image, p, **options, out=tmp_path / "labels.npy")
    assert (found.energy, found.lower_bound) == (expected.energy, expected.lower_bound)


@pytest.mark.parametrize("labels", [2, 3, 5])
@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4])
def test_no_round_is_run_after_the_gap_is_met(labels, gap):
    """What a round has proven is known at the start of the next one, and none may follow that."""
    image, p = crowd((60, 80), labels)
    options = {"tile": 30, "model": MODEL, "axis": 0, "gap": gap}
    result = refine(image, p, **options)
    ends = [row["iterations"] for row in result.trace]
    assert result.gap <= gap
    if len(ends) > 1:  # the first check comes after the first round
        assert result.gap > gap / 10
    if len(ends) > 2:
        earlier = refine(image, p, **options, max_iterations=ends[-3])
        assert earlier.iterations == ends[-3]
        assert earlier.gap > gap
    alone = in_memory(image, p).solve("lp", gap=gap)
    assert result.iterations <= 2 * alone.iterations + 4


def test_the_first_round_is_as_long_as_a_tile_needs():
    image, p = crowd((60, 80), 2)
    for gap in (1e-1, 1e-2):
        result = refine(image, p, tile=30, model=MODEL, axis=0, gap=gap)
        assert len(result.trace) == 1
        alone = in_memory(image, p).solve("lp", gap=gap)
        assert result.iterations <= alone.iterations + 2
