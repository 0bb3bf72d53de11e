"""One call: its options, its defaults, what it refuses and its form for many images."""

from __future__ import annotations

import inspect
import typing
import warnings
from dataclasses import replace

import numpy as np
import pytest

import densecrf
from densecrf import ArgumentError, solvers
from densecrf.model import presets
from densecrf.model.kernels import color_range
from densecrf.model.parameters import read_parameters, write_parameters
from densecrf.model.presets import PRESETS, get_parameters
from densecrf.model.resolution import COARSEST
from densecrf.model.specification import Specification
from densecrf.refinement import build
from densecrf.solvers import registry
from scored_image import HARD, IMAGE, H, L, P, W

# --- refused, with what to do ------------------------------------------------


@pytest.mark.parametrize(
    ("image", "scores", "message"),
    [
        (np.concatenate([P, P]), IMAGE, "the arguments look swapped, the image comes first"),
        (P, IMAGE, r"whole numbers .* 2 ways: .*\(the image comes first\)"),
        (IMAGE, P.transpose(0, 2, 1), "height and width look swapped"),
        (IMAGE, P[:, :5], r"probabilities: shape \(4, 5, 17\) does not fit an image of shape"),
        (IMAGE, np.where(P > 0.9, np.nan, P), "probabilities: .* not finite, the first is nan at"),
        (np.full((H, W), np.nan), P, "image: .* not finite"),
        (IMAGE, P[:, :0], "holds no values"),
        (IMAGE, "cat.png", "probabilities='cat.png': a path instead of an array"),
    ],
)
def test_wrong_arrays_say_what_to_do(image, scores, message):
    with pytest.raises(ValueError, match=message):
        build(image, scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "logit"}, "kind='logit'.*Did you mean 'logits'"),
        ({"axis": 5}, r"axis=5: the array of shape \(4, 12, 17\) has no such axis"),
        ({"model": "deeplap"}, "model='deeplap'.*Did you mean 'deeplab'"),
        ({"n_labels": 7}, "n_labels=7: the array holds 4 labels"),
        ({"seeds": np.zeros((2, 2), int)}, r"seeds: shape \(2, 2\) for \(12, 17\) pixels"),
        ({"seeds": np.full((H, W), 9)}, "seeds: value 9 is neither a label 0 … 3 nor -1 or 255"),
        ({"seeds": np.ones((H, W), bool)}, "seeds: a mask means foreground, but there are 4"),
        ({"image_range": (3, 3)}, "image_range=.*black lower"),
        ({"scale_sigmas": -2.0}, "scale_sigmas=-2.0"),
        ({"ignore": np.ones((2, 2), bool)}, "ignore: shape"),
        ({"model": replace(PRESETS["afa"], sigma_xy=1e-8)}, "sigma_xy=1e-08.*or greater"),
    ],
)
def test_wrong_options_say_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        build(IMAGE, P, **options).energy(HARD)


def test_unknown_keywords_name_the_closest():
    with pytest.raises(TypeError, match=r"'sigma_colour'. Did you mean 'sigma_color'\?"):
        densecrf.refine(IMAGE, P, sigma_colour=5)
    with pytest.raises(TypeError, match=r"'sigma_colour'. Did you mean 'sigma_color'\?"):
        densecrf.refine_many([IMAGE], [P], sigma_colour=5)
    with pytest.raises(ValueError, match=r"'max_iteration': .*Did you mean 'max_iterations'\?"):
        build(IMAGE, P).solve("lp", max_iteration=5)
    with pytest.raises(TypeError, match=r"'qqq'$"):
        build(IMAGE, P, qqq=5)


def test_unknown_method_names_the_closest():
    with pytest.raises(ValueError, match=r"method='mff': must be one of .*Did you mean 'mf'"):
        densecrf.refine(IMAGE, P, method="mff")


# --- colours and sizes ------------------------------------------------


def test_the_range_of_colours():
    white = np.array([[0.0, 255.0]])
    np.testing.assert_allclose(color_range(white / 255, None)[0], white)
    np.testing.assert_allclose(color_range((white * 257).astype(np.uint16), None)[0], white)
    np.testing.assert_allclose(color_range(np.array([[False, True]]), None)[0], white)
    np.testing.assert_allclose(color_range(np.array([[-1000, 400]]), (-1000, 400))[0], white)
    np.testing.assert_array_equal(color_range(IMAGE, None)[0], IMAGE)


def test_a_standardised_image_is_refused():
    with pytest.raises(ValueError, match=r"values from -2 to 3; colour standard deviations"):
        build(np.array([[-2.0, 3.0]]), np.full((2, 1, 2), 0.5))


def test_sigmas_scale_with_the_image():
    large = np.zeros((750, 1000), np.uint8)
    p = np.full((2, 750, 1000), 0.5)
    spatial, bilateral = build(large, p, scale_sigmas=True, model="deeplab").kernels
    assert (spatial.sigma, bilateral.sigma_xy, bilateral.sigma_color) == (2, 134, 3)
    spatial, bilateral = build(large, p, scale_sigmas=0.5, model="deeplab").kernels
    assert (spatial.sigma, bilateral.sigma_xy) == (0.5, 33.5)


def test_presets_are_those_that_people_copy():
    rows = {
        "pydensecrf": (3, 3, 80, 13, 10),
        "deeplab": (1, 3, 67, 3, 4),
        "afa": (3, 3, 64, 5, 4),
        "cam": (3, 3, 50, 5, 10),
        "irn": (3, 3, 50, 5, 10),
        "psa": (3, 3, 80, 13, 10),
        "toco": (1, 1, 121, 5, 4),
        "mctformer": (4, 3, 83, 5, 3),
        "cutler": (3, 7, 50, 5, 10),
        "video": (3, 0, 60, 5, 5),
        "pathology": (15, 30, 10, 20, 50),
        "manga": (1, 3, 23, 7, 20),
    }
    for name, row in rows.items():
        p = get_parameters(name)
        assert (p.sigma, p.weight, p.sigma_xy, p.sigma_color, p.bilateral_weight) == row
    assert get_parameters("cam").confidence == get_parameters("irn").confidence == 0.7
    softmax_of_a_mask = 1 / (1 + np.exp(-1))
    assert get_parameters("cutler").confidence == pytest.approx(softmax_of_a_mask, abs=1e-3)
    assert [name for name in PRESETS if PRESETS[name].normalization == "none"] == ["manga"]


def test_a_preset_that_is_not_normalised_declares_such_an_energy():
    assert build(IMAGE, P, model="manga").normalization == "none"
    assert build(IMAGE, P, model="deeplab").normalization == "symmetric"


def test_a_preset_without_a_spatial_kernel_has_the_energy_of_the_other():
    crf = build(IMAGE, P, model="video")
    alone = densecrf.DenseCRF(crf.unary.reshape(L, H, W), [crf.kernels[1]])
    labels = np.random.default_rng(0).integers(L, size=(H, W))
    assert crf.energy(labels) == pytest.approx(alone.energy(labels), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", densecrf.METHODS)
def test_cutlers_preset_warns_of_methods_that_find_the_optimum(method):
    mask = (P[0] > P[1]).astype(np.uint8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        densecrf.refine(IMAGE, mask, model="cutler", method=method, n_labels=2)
    said = [str(each.message) for each in caught if "the empty mask" in str(each.message)]
    finds_it = method.endswith("lp") or method.startswith("prox-lp")
    assert len(said) == finds_it
    if said:
        assert f"{method!r} looks for; use method='mf' with max_iterations=10" in said[0]


def test_what_a_preset_says_of_itself_comes_back_from_a_file(tmp_path):
    for name, preset in PRESETS.items():
        write_parameters(tmp_path / f"{name}.json", preset)
        assert read_parameters(tmp_path / f"{name}.json") == preset
    assert "caution" not in (tmp_path / "deeplab.json").read_text("utf-8")
    (tmp_path / "cutler.json").write_text(
        (tmp_path / "manga.json").read_text("utf-8").replace('"none"', '"both"'), "utf-8"
    )
    with pytest.raises(ValueError, match="it must be one of symmetric, none"):
        read_parameters(tmp_path / "cutler.json")


def test_the_result_has_the_shape_of_the_image():
    result = densecrf.refine(IMAGE, P, method="mf")
    assert result.labels.shape == (H, W)
    assert result.marginals.shape == (L, H, W)


def test_one_label_results_come_with_a_warning():
    """Weak unaries under strong weights: the answer is one label, and it says why."""
    weak = 0.25 + 0.01 * (P - 0.25)
    with pytest.warns(UserWarning, match="the pairwise weights dominate"):
        densecrf.refine(IMAGE, weak, method="unary")


# --- keywords ------------------------------------------------


def test_numbers_of_the_preset_are_keywords():
    crf = build(IMAGE, P, bilateral_weight=3, sigma_color=5, sigma_xy=(40, 60), weight=1, sigma=2)
    spatial, bilateral = crf.kernels
    assert (spatial.sigma, spatial.weight) == (2, 1)
    assert (bilateral.sigma_xy, bilateral.sigma_color, bilateral.weight) == ((40, 60), 5, 3)
    assert build(IMAGE, P, model="deeplab", weight=7).kernels[1].sigma_xy == 67
    scaled = build(IMAGE, P, sigma_xy=(40, 60), scale_sigmas=0.5).kernels[1]
    np.testing.assert_array_equal(scaled.sigma_xy, (20, 30))


@pytest.mark.parametrize("name", ["sigma", "weight", "sigma_xy", "sigma_color", "bilateral_weight"])
def test_wrong_numbers_are_refused_by_the_keyword(name):
    with pytest.raises(ArgumentError) as caught:
        densecrf.refine(IMAGE, P, **{name: -1})
    assert caught.value.name == name


def test_every_parameter_of_refine_is_explicit_and_documented():
    parameters = inspect.signature(densecrf.refine).parameters
    assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
    text = densecrf.refine.__doc__
    assert all(f"    {name} : " in text for name in parameters)
    shared = inspect.signature(Specification).parameters
    assert {name: p.default for name, p in shared.items()} == {
        name: parameters[name].default for name in shared
    }


def test_methods_are_a_literal():
    names = {**vars(registry), "Result": densecrf.Result}
    assert typing.get_type_hints(densecrf.refine, names)["method"] is registry.MethodName
    assert tuple(registry.REGISTRY) == densecrf.METHODS


def test_refine_on_a_device():
    pytest.importorskip("torch")
    here = densecrf.refine(IMAGE, P, method="mf")
    there = densecrf.refine(IMAGE, P, method="mf", device="cpu")
    assert (here.labels == there.labels).mean() > 0.95


# --- one place for defaults ------------------------------------------------


def test_defaults_are_the_same_everywhere():
    default = PRESETS["default"]
    assert default.grain == COARSEST
    for function in (densecrf.refine, densecrf.DenseCRF.solve, solvers.solve):
        assert inspect.signature(function).parameters["gap"].default is None
    assert registry.REGISTRY["lp"].gap == registry.LP_GAP
    torch = pytest.importorskip("densecrf.torch")
    defaults = inspect.signature(torch.DenseCRF).parameters
    ours = {
        "spatial_sigma": default.sigma,
        "spatial_weight": default.weight,
        "bilateral_sigma_xy": default.sigma_xy,
        "bilateral_sigma_color": default.sigma_color,
        "bilateral_weight": default.bilateral_weight,
    }
    assert {name: defaults[name].default for name in ours} == ours


def test_mf_is_mean_field_to_convergence():
    crf = build(IMAGE, P)
    assert densecrf.refine(IMAGE, P, method="mf").iterations == crf.solve("mf").iterations > 5
    assert densecrf.refine(IMAGE, P, method="mf5").iterations == 5
    assert densecrf.refine(IMAGE, P, method="mf", max_iterations=2).iterations == 2


# --- many ------------------------------------------------


def test_many_by_processes():
    maps = [P, P[:, :3], P]
    apart = list(densecrf.refine_many([IMAGE] * 3, maps, method="mf5", processes=True))
    here = list(densecrf.refine_many([IMAGE] * 3, maps, method="mf5"))
    assert [type(each) for each in apart] == [type(each) for each in here]
    assert str(apart[1].error) == str(here[1].error)
    for one, other in zip(apart[::2], here[::2], strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.energy == other.energy
        assert one.changes == other.changes


def test_many_images_read_the_model_s_file_once(tmp_path):
    write_parameters(tmp_path / "m.json", PRESETS["afa"])
    results = densecrf.refine_many(
        [IMAGE] * 2, [P] * 2, model=str(tmp_path / "m.json"), method="mf5"
    )
    (tmp_path / "m.json").unlink()
    expected = densecrf.refine(IMAGE, P, model="afa", method="mf5").labels
    for result in results:
        np.testing.assert_array_equal(result.labels, expected)


def test_many_images_keep_their_order_and_survive_failures():
    maps = [np.roll(P, shift, 2) for shift in range(5)]
    maps[3] = maps[3][:, :4]
    results = list(densecrf.refine_many([IMAGE] * 5, maps, method="mf5", workers=2))
    for index, each in enumerate(results):
        if index == 3:
            assert isinstance(each, densecrf.Failure)
            assert (each.index, type(each.error), bool(each)) == (3, ArgumentError, False)
        else:
            expected = densecrf.refine(IMAGE, maps[index], method="mf5")
            np.testing.assert_array_equal(each.labels, expected.labels)


def test_many_images_are_read_a_bounded_way_ahead():
    read = []

    def images():
        for index in range(50):
            read.append(index)
            yield IMAGE

    results = densecrf.refine_many(images(), iter([P] * 50), method="unary", workers=2)
    next(results)
    assert len(read) <= 6
    results.close()
    assert len(read) <= 6


def test_many_images_refuse_wrong_keywords_and_lengths_at_once():
    with pytest.raises(TypeError, match="bilateral_wait"):
        densecrf.refine_many([], [], bilateral_wait=3)
    with pytest.raises(ValueError, match="probabilities: fewer than images"):
        list(densecrf.refine_many([IMAGE, IMAGE], [P], method="unary"))
    with pytest.raises(ArgumentError, match="workers=0"):
        densecrf.refine_many([], [], workers=0)
    assert list(densecrf.refine_many([], [])) == []


@pytest.mark.parametrize("owner", [densecrf, presets])
def test_the_former_name_of_parameters_leads_to_them(owner):
    with pytest.warns(
        DeprecationWarning, match=r"Model is now densecrf\.model\.parameters\.Param"
    ) as heard:
        assert owner.Model is densecrf.Parameters
    assert [each.filename for each in heard] == [__file__]
