"""Tiles solve the model of `densecrf.refine`: the same numbers for the same arguments."""

import warnings

import numpy as np
import pytest

import densecrf
from densecrf.large import planning, refine
from densecrf.model.label_prior import LabelPrior
from densecrf.model.parameters import Parameters
from densecrf.model.specification import Specification
from densecrf.refinement import build
from large_scenes import MODEL, crowd

IMAGE, P = crowd()
PRIOR = LabelPrior((0.2, 0.3, 0.5), (0.4, 0.2, 0.3), (0.5, -0.2, 0.0))
NEAR = {"sigma": 2, "sigma_xy": 4}  # which reach less than the image


def small(image):
    return np.asarray(image, np.float32)[::2, ::2]


CASES = {
    "default": ((IMAGE, P), {}),
    "default, near": ((IMAGE, P), NEAR),
    "preset": ((IMAGE, P), {"model": "deeplab", "sigma_xy": 5}),
    "not normalised": ((IMAGE, P), {"model": "manga", "sigma_xy": 5}),
    "scaled": ((IMAGE, P), {"model": "deeplab", "scale_sigmas": 0.07}),
    "prior": ((IMAGE, P), {"model": Parameters(2, 3, 5, 20, 5, prior=PRIOR)}),
    "label costs": ((IMAGE, P), {"model": Parameters(2, 3, 5, 20, 5, label_costs=(0.5, 1.0, 0.7))}),
    "two labels": ((IMAGE, P[:2] / P[:2].sum(0)), {**NEAR}),
    "strength": ((IMAGE, P), {"model": MODEL, "strength": 0.4}),
    "sigma": ((IMAGE, P), {"model": MODEL, "sigma": (1.5, 3), "weight": 2}),
    "labels": ((IMAGE, P.argmax(0)), {**NEAR, "void": [255, 2], "axis": None}),
    "void": ((IMAGE, np.where(IMAGE[..., 0] > 90, 255, P.argmax(0))), {**NEAR, "axis": None}),
    "low resolution": ((IMAGE, P[:, ::2, ::4] / P[:, ::2, ::4].sum(0)), {**NEAR}),
    "uint16": ((IMAGE.astype(np.uint16) * 257, P), {**NEAR}),
    "unit floats": ((IMAGE / np.float32(255), P), {**NEAR}),
    "alpha": ((np.dstack([IMAGE, np.full(IMAGE.shape[:2], 9, np.uint8)]), P), {**NEAR}),
    "logits": ((IMAGE, np.log(P) + 3), {**NEAR}),
    "energies": ((IMAGE, -np.log(P)), {**NEAR}),
    "map": ((IMAGE, P[0]), {**NEAR, "axis": None}),
}


@pytest.mark.parametrize("tile", [22, 30, 500])
@pytest.mark.parametrize("case", CASES)
def test_energy_is_that_of_refine(case, tile):
    given, options = CASES[case]
    options = {"axis": 0, **options}
    result = refine(*given, tile=tile, gap=5e-3, **options)
    crf = build(*given, **options)
    assert result.energy == pytest.approx(crf.energy(result.labels), rel=1e-9)
    assert result.converged
    assert result.gap <= 5e-3
    best = densecrf.refine(*given, gap=1e-4, **options)
    assert result.lower_bound <= best.energy * (1 + 1e-9)


WRONG = {
    "dark uint16": ((IMAGE.astype(np.uint16) * 40, P), {}),
    "three times probabilities": ((IMAGE, P * 3), {}),
    "sigmoids": ((IMAGE, P * 0.7), {}),
    "percentages": ((IMAGE, P * 100), {}),
    "varying alpha": ((np.dstack([IMAGE, IMAGE[..., 0]]), P), {}),
    "labels beyond": ((IMAGE, P.argmax(0)), {"n_labels": 2, "axis": None}),
    "nothing known": ((IMAGE, np.full(IMAGE.shape[:2], 255)), {"n_labels": 3, "axis": None}),
    "one label": ((IMAGE, np.zeros(IMAGE.shape[:2], int)), {"axis": None}),
    "prior of two labels": ((IMAGE, P), {"model": Parameters(prior=LabelPrior(*[(0.5, 0.5)] * 3))}),
    "costs of two labels": ((IMAGE, P), {"model": Parameters(label_costs=(0.5, 0.5))}),
}


@pytest.mark.parametrize("case", WRONG)
def test_messages_are_those_of_refine(case):
    given, options = WRONG[case]
    options = {"axis": 0, **NEAR, **options}
    with pytest.raises(ValueError) as expected:  # noqa: PT011 - whatever it says
        densecrf.refine(*given, **options)
    with pytest.raises(ValueError) as found:  # noqa: PT011
        refine(*given, tile=30, **options)
    assert str(found.value) == str(expected.value)


def test_one_tile_is_refine():
    expected = densecrf.refine(IMAGE, P, axis=0)
    found = refine(IMAGE, P, axis=0, tile=500)
    assert (found.energy, found.lower_bound) == (expected.energy, expected.lower_bound)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.iterations == expected.iterations


def test_one_tile_with_a_mask_is_solved_in_memory():
    mask = np.random.default_rng(5).random(IMAGE.shape[:2]) < 0.6
    found = refine(IMAGE, P, axis=0, tile=500, mask=mask, model=MODEL, gap=1e-3)
    kernels = [
        densecrf.Features(kernel.features(mask.shape)[mask.ravel()], kernel.weight)
        for kernel in MODEL.kernels(IMAGE)
    ]
    crf = densecrf.DenseCRF.from_probabilities(P[:, mask], kernels)
    assert found.energy == pytest.approx(crf.energy(found.labels[mask]), rel=1e-9)
    assert found.energy == pytest.approx(crf.solve("lp").energy, rel=1e-3)
    assert (found.labels[~mask] == 255).all()


class TestSides:
    """How large tiles are."""

    @pytest.fixture(autouse=True)
    def small_tiles(self):
        """Take the sides as they are for users."""

    def test_an_image_that_fits_into_little_memory_is_not_cut(self):
        assert planning.worthwhile_sides((64, 64), (700, 900), (40, 40), 3) == (700, 900)

    def test_a_tile_smaller_than_the_reach_is_enlarged_with_a_word(self, monkeypatch):
        monkeypatch.setattr(planning, "GRANTED", 0)
        with pytest.warns(UserWarning, match=r"tile.*kernels reach.*tiles are \(400, 400\)"):
            sides = planning.worthwhile_sides((64, 64), (4000, 4000), (400, 400), 3)
        assert sides == (400, 400)

    def test_where_the_margin_is_most_of_the_image_it_is_not_cut(self, monkeypatch):
        monkeypatch.setattr(planning, "GRANTED", 0)
        with pytest.warns(UserWarning, match="the image is not cut"):
            sides = planning.worthwhile_sides((500, 500), (1400, 1400), (300, 300), 3)
        assert sides == (1400, 1400)

    def test_kernels_that_follow_an_image_beyond_memory_are_refused(self):
        shape = (150_000, 150_000)
        image = np.broadcast_to(np.zeros(3, np.uint8), (*shape, 3))
        known = np.broadcast_to(np.uint8(0), shape)
        with (
            pytest.warns(UserWarning, match="not cut"),
            pytest.raises(ValueError, match=r"tile.*margin.*GiB.*scale_sigmas=False"),
        ):
            refine(image, known, n_labels=3, model="scribbles")


@pytest.mark.parametrize("content", ["scores", "labels"])
def test_the_resolution_of_the_scores_is_that_of_the_whole_image(content, tmp_path):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (560, 600, 3), dtype=np.uint8)  # measured on windows
    known = rng.dirichlet(np.ones(3), (140, 150)).astype(np.float32)
    if content == "labels":
        known = rng.integers(0, 3, (560, 600))
    specification = Specification(axis=-1 if content == "scores" else None)
    found = specification.crf(image, known).measured
    job, parameters = planning.plan(image, known, specification, folder=tmp_path, tile=256)
    expected = specification.parameters((560, 600), found)
    assert parameters == expected
    assert len(job.kernels) == 2


@pytest.mark.filterwarnings("ignore:kernels")
@pytest.mark.parametrize("tile", [22, 500])
def test_a_model_made_for_mean_field_warns_once(tile):
    mask = (P[0] > 0.5).astype(np.uint8)
    options = {"model": "cutler", "sigma_xy": 5, "n_labels": 2, "tile": tile}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refine(IMAGE, mask, gap=0.5, **options)
        refine(IMAGE, mask, method="mf5", **options)
    assert sum("the empty mask" in str(each.message) for each in caught) == 1
