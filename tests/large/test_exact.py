"""Sums over tiles are those of the whole image, whatever the tiles."""

from dataclasses import replace

import numpy as np
import pytest

import densecrf
from densecrf.large import visits
from densecrf.large.planning import plan
from densecrf.large.tiles import Tiling, around, flat, lattice_reach
from densecrf.large.visits import Before
from densecrf.model.parameters import Parameters
from densecrf.model.specification import Specification
from densecrf.operators import LatticeFilter
from densecrf.problem.certificate import Costs, Potentials
from densecrf.problem.problem import problem_of
from large_scenes import MODEL, in_memory, scene


def job_of(folder, image, p, tile, model=MODEL, **changed):
    specification = Specification(model=model, axis=0, image_range=(0, 255))
    options = {"folder": folder, "tile": tile, "inner": 5, "threads": 1, **changed}
    job, _ = plan(image, p, specification, **options)
    return replace(job, kind="probabilities")


def whole(job):
    return tuple(slice(0, side) for side in job.tiling.shape)


def evaluated(job, y, z, labels, cells):
    """Energy and bound of given labels and potentials, by tiles."""
    for task in range(len(job.tiling.tiles(0))):
        visits.masses(job, task)
    marginals, kept = visits.stored_rows(job)
    y, z = y[:marginals], z[:kept]
    job.store.write("given", whole(job), np.concatenate([y, z]).astype(np.float32))
    job.store.write("labels", whole(job), labels[None].astype(np.uint16))
    top = z.reshape(len(z), -1).max(1)
    before = Before("given", (0.0,) * len(z), tuple(top.tolist()), cells)
    extents = [[0.0, high] for high in before.highest()]
    totals = []
    for turn in (0, 1):
        tasks = range(len(job.tiling.tiles(turn)))
        records = [visits.certificate(job, turn, task, before, "labels", extents) for task in tasks]
        totals.append([sum(each[key] for each in records) for key in ("energy", "bound")])
    assert totals[0] == pytest.approx(totals[1], rel=1e-12)
    return totals[0]


def potentials(labels, shape, seed=1):
    """Marginals and potentials whose extents are whole numbers, as tiles use them."""
    rng = np.random.default_rng(seed)
    y = rng.random((labels, *shape)).astype(np.float32)
    y /= y.sum(0)
    z = rng.integers(0, 7, (labels, *shape)).astype(np.float32)
    z *= rng.random((labels, *shape)) < 0.7
    corner, other = (slice(None), *[0] * len(shape)), (slice(None), *[-1] * len(shape))
    for label in range(labels):
        at = (label, *[0] * (len(shape) - 1), 2 * label)
        y[(slice(None), *at[1:])] = np.eye(labels)[label]
        z[at] = 6
    z[other], z[corner], y[corner] = 0, np.where(np.arange(labels) == 0, 6, 0), np.eye(labels)[0]
    y[other] = np.eye(labels)[labels - 1]
    z[(0, *other[1:])] = z[(labels - 1, *corner[1:])] = 0
    return y, z


@pytest.mark.parametrize("sigma", [0.8, 2.0, 3.7])
def test_margin_holds_all_that_a_pixel_depends_on(sigma):
    shape = (40, 37)
    rng = np.random.default_rng(3)
    grid = np.indices(shape).reshape(2, -1).T[:, ::-1] / sigma
    features = np.concatenate([grid, rng.normal(0, 1.5, (len(grid), 2))], 1)
    box = (slice(17, 20), slice(15, 19))
    outer = around(box, lattice_reach((sigma, sigma)), shape)
    everything = tuple(slice(0, side) for side in shape)
    near = flat(outer, everything)
    values = rng.random((1, len(grid))).astype(np.float32)
    expected = LatticeFilter(features).apply(values[0])[flat(box, everything)]
    found = LatticeFilter(features[near]).apply(values[0, near])[flat(box, outer)]
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_reach_is_not_wider_than_needed():
    shape, sigma = (1, 400), 10.0
    features = np.indices(shape).reshape(2, -1).T[:, ::-1] / (sigma, 1.0)
    matrix = LatticeFilter(features).apply(np.eye(400, dtype=np.float32))
    width = max(np.ptp(np.flatnonzero(row)) for row in matrix[100:300])
    reach = lattice_reach((1.0, sigma))[1]
    assert 0.7 * 2 * reach < width <= 2 * reach


@pytest.mark.parametrize("tile", [8, 20, 33, 64, 500])
@pytest.mark.parametrize("normalization", ["symmetric", "none"])
def test_energies_and_bounds_are_the_whole_image_s(tmp_path, tile, normalization):
    shape = (41, 52)
    image, p = scene(shape)
    y, z = potentials(3, shape)
    labels = p.argmax(0)
    job = job_of(tmp_path, image, p, tile, normalization=normalization)
    energy, bound = evaluated(job, y, z, labels, 1.0)
    crf = in_memory(image, p, normalization)
    assert energy == pytest.approx(crf.energy(labels), rel=1e-9)
    dual = Potentials(y.reshape(3, -1), z.reshape(3, -1), 1.0)
    assert bound == pytest.approx(Costs(problem_of(crf), dual).bound, rel=1e-9)


@pytest.mark.parametrize("costs", [(0.5, 1.0, 0.25), (0.5, 0.9)])
def test_label_costs(tmp_path, costs):
    shape = (30, 26)
    image, p = scene(shape, len(costs))
    y, z = potentials(len(costs), shape)
    labels = p.argmax(0)
    job = replace(job_of(tmp_path, image, p, 12), label_costs=costs)
    energy, bound = evaluated(job, y, z, labels, 1.0)
    crf = in_memory(image, p, costs=costs)
    assert energy == pytest.approx(crf.energy(labels), rel=1e-9)
    dual = Potentials(y.reshape(len(costs), -1), z.reshape(len(costs), -1), 1.0)
    assert bound == pytest.approx(Costs(problem_of(crf), dual).bound, rel=1e-9)


def test_volumes(tmp_path):
    shape = (9, 24, 21)
    image, p = scene(shape, 2)
    y, z = potentials(2, shape)
    labels = p.argmax(0)
    energy, bound = evaluated(job_of(tmp_path, image, p, (8, 10, 12)), y, z, labels, 1.0)
    crf = in_memory(image, p)
    assert energy == pytest.approx(crf.energy(labels), rel=1e-9)
    dual = Potentials(y.reshape(2, -1), z.reshape(2, -1), 1.0)
    assert bound == pytest.approx(Costs(problem_of(crf), dual).bound, rel=1e-9)


def test_pixels_outside_the_mask_have_no_part_in_the_energy(tmp_path):
    shape = (30, 34)
    image, p = scene(shape, 2)
    mask = np.random.default_rng(5).random(shape) < 0.6
    mask[:, :14] = False
    mask[0, 0] = mask[-1, -1] = mask[0, 2] = True
    y, z = potentials(2, shape)
    labels = p.argmax(0)
    job = job_of(tmp_path, image, p, 12, mask=mask)
    energy, bound = evaluated(job, y, z, labels, 1.0)
    kernels = [
        densecrf.Features(kernel.features(shape)[mask.ravel()], kernel.weight)
        for kernel in MODEL.kernels(image)
    ]
    crf = densecrf.DenseCRF.from_probabilities(p[:, mask], kernels)
    assert energy == pytest.approx(crf.energy(labels[mask]), rel=1e-9)
    dual = Potentials(np.ascontiguousarray(y[:, mask]), np.ascontiguousarray(z[:, mask]), 1.0)
    assert bound == pytest.approx(Costs(problem_of(crf), dual).bound, rel=1e-9)


def test_positions_far_from_the_origin_are_exact(tmp_path):
    shape = (4, 300_000)
    image = np.zeros((*shape, 3), np.uint8)
    p = np.full((2, *shape), 0.5, np.float32)
    job = job_of(tmp_path, image, p, (4, 64), model=Parameters(0.7, 1, 0.7, 9, 1))
    far = 299_000
    near = job.local((slice(0, 4), slice(far, far + 60)))
    features = job.features(near)[0]
    steps = np.diff(features.reshape(4, -1, 2)[0, :, 0])
    np.testing.assert_allclose(steps, 1 / 0.7, rtol=1e-9)


def test_every_pixel_is_in_one_tile_of_each_turn():
    tiling = Tiling.of((37, 50), (10, 16))
    for turn in (0, 1):
        count = np.zeros(tiling.shape, int)
        for box in tiling.tiles(turn):
            count[box] += 1
        assert (count == 1).all()
    assert tiling.tiles(0) != tiling.tiles(1)
