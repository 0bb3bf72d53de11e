"""Errors of arguments: what they say, and in whose terms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import densecrf
from densecrf import ArgumentError, ArgumentWarning
from densecrf.validation import check_choice, check_finite, check_positive, mention

ERROR = ArgumentError(
    "probabilities", ..., f"read in 2 ways: {mention('kind', 'logits')}; or {mention('axis', 0)}"
)


def test_an_error_names_argument_value_and_remedy():
    with pytest.raises(ArgumentError, match=r"sigma=-1\.0: must be a finite number") as caught:
        check_positive("sigma", np.float64(-1))
    assert (caught.value.name, caught.value.value) == ("sigma", -1.0)
    assert caught.value.remedy.startswith("must be")
    assert isinstance(caught.value, ValueError)
    assert issubclass(ArgumentWarning, UserWarning)


def test_arguments_are_spelled_by_the_interface_that_reports_them():
    assert str(ERROR) == "probabilities: read in 2 ways: kind='logits'; or axis=0"
    assert "\0" not in str(ERROR) + ERROR.remedy

    def spell(name, value):
        return f"<{name} {value}>"

    assert ERROR.spelled(spell) == "<probabilities >: read in 2 ways: <kind 'logits'>; or <axis 0>"


def test_renaming_keeps_the_rest():
    renamed = ERROR.renamed(probabilities="sm", kind="what")
    assert str(renamed) == "sm: read in 2 ways: what='logits'; or axis=0"
    assert str(renamed.renamed(what="kind")) == "sm: read in 2 ways: kind='logits'; or axis=0"


def test_errors_come_back_from_other_processes():
    again = pickle.loads(pickle.dumps(ERROR))
    assert (type(again), str(again)) == (ArgumentError, str(ERROR))


def test_long_values_are_shortened():
    with pytest.raises(ArgumentError) as caught:
        check_choice("kind", "x" * 10_000, ("logits",))
    assert len(str(caught.value)) < 200


def test_the_facade_speaks_of_its_own_arguments():
    from densecrf.drop_in.pydensecrf.densecrf import DenseCRF2D

    crf = DenseCRF2D(5, 4, 2)
    with pytest.raises(ArgumentError) as caught:
        crf.addPairwiseBilateral(1e-12, 3, np.zeros((4, 5, 3), np.uint8), 3)
    assert caught.value.name == "sxy"
    assert densecrf.ArgumentError is ArgumentError


def test_warnings_point_at_the_callers_line():
    weak = 0.5 + 0.01 * np.random.default_rng(0).uniform(-1, 1, (2, 6, 6))
    image = np.zeros((6, 6, 3), np.uint8)
    with pytest.warns(ArgumentWarning, match="lower bilateral_weight= and weight=") as caught:
        densecrf.refine(image, weak / weak.sum(0), method="unary")
    assert {each.filename for each in caught} == {__file__}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_named_in_any_precision(dtype, value):
    array = np.array([[1.0, value]], dtype)
    with pytest.raises(ArgumentError, match=r"logits: 1 of 2 values are not finite.* at \(0, 1\)"):
        check_finite("logits", array)
