"""Results in files: what was saved comes back, and nothing else is believed."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

import densecrf
from densecrf.io.results import HEAD


@pytest.fixture(scope="module")
def crf():
    rng = np.random.default_rng(3)
    return densecrf.DenseCRF(rng.standard_normal((3, 6, 5)), [densecrf.Spatial(1.5, 1.0)])


@pytest.fixture
def saved(crf, tmp_path):
    path = tmp_path / "result.npz"
    crf.solve("sg-lp").save(path)
    return path


def altered(path, change):
    """Rewrite the JSON inside a file."""
    with np.load(path) as archive:
        arrays = dict(archive)
    head = json.loads(arrays[HEAD].tobytes())
    change(head)
    arrays[HEAD] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    np.savez(path, **arrays)
    return path


def numbers(found):
    """Return what a verification found, in comparable form."""
    counts = (found.possible.tolist(), found.undeniable.tolist())
    return (found.energy, found.lower_bound, found.tolerance, *counts)


@pytest.mark.parametrize("method", densecrf.METHODS)
def test_everything_comes_back(crf, tmp_path, method):
    result = crf.solve(method)
    result.save(tmp_path / "a.npz")
    back = densecrf.Result.load(tmp_path / "a.npz")
    for name in ("labels", "marginals"):
        np.testing.assert_array_equal(getattr(back, name), getattr(result, name))
        assert getattr(back, name).dtype == getattr(result, name).dtype
    for name in ("energy", "lower_bound", "gap", "method", "converged", "message", "seconds",
                 "iterations", "best_constant", "trace"):  # fmt: skip
        assert getattr(back, name) == getattr(result, name)
    assert back.info.keys() == result.info.keys()
    for key, value in result.info.items():
        np.testing.assert_array_equal(back.info[key], value)
    assert str(back) == str(result)


@pytest.mark.parametrize("method", ["lp", "prox-lp", "prox-lp-acc", "cg-lp"])
def test_a_certificate_comes_back_and_is_checked_by_someone_else(crf, tmp_path, method):
    result = crf.solve(method, keep_dual=True)
    result.save(tmp_path / "a.npz")
    back = densecrf.Result.load(tmp_path / "a.npz")
    again = densecrf.DenseCRF(crf.unary.reshape(3, 6, 5), [densecrf.Spatial(1.5, 1.0)])
    found = back.verify(again)
    assert numbers(found) == numbers(result.verify())
    assert not found.disagreements(back.energy, back.lower_bound, back.possible)
    back.save(tmp_path / "b.npz")  # and once more, without a model
    assert numbers(densecrf.Result.load(tmp_path / "b.npz").verify(again)) == numbers(found)
    (said,) = found.disagreements(back.energy, back.lower_bound + 0.01)
    assert said.startswith("the lower bound is stated as")
    assert len(found.disagreements(back.energy - 0.01, None)) == 2


def test_a_certificate_of_another_model_is_refused(crf, tmp_path):
    crf.solve("lp", keep_dual=True).save(tmp_path / "a.npz")
    back = densecrf.Result.load(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="a loaded result has no model"):
        back.verify()
    unary = crf.unary.reshape(3, 6, 5)
    for name, other in (
        ("kernels", densecrf.DenseCRF(unary, [densecrf.Spatial(1.5, 2.0)])),
        ("normalization", densecrf.DenseCRF(unary, crf.kernels, "none")),
        ("labels", densecrf.DenseCRF(unary[:2], crf.kernels)),
    ):
        with pytest.raises(ValueError, match=rf"crf: its {name} is .*, that of the result"):
            back.verify(other)
    found = back.verify(densecrf.DenseCRF(unary + 0.01, crf.kernels))
    assert len(found.disagreements(back.energy, back.lower_bound)) == 2


def test_other_duals_come_back_too_and_damaged_ones_are_refused(crf, tmp_path):
    result = crf.solve("qp", keep_dual=True)
    result.save(tmp_path / "a.npz")
    back = densecrf.Result.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(back.dual.y, result.dual.y)
    path = tmp_path / "result.npz"
    for change in (
        lambda head: head["dual"].update(kind="other"),
        lambda head: head["dual"]["parts"].append({}),
        lambda head: head["dual"]["parts"][0].update(arrays=["scores", "more"]),
        lambda head: head.update(declared=3),
    ):
        crf.solve("lp", keep_dual=True).save(path)
        with pytest.raises(ValueError, match=r"result.npz.*damaged"):
            densecrf.Result.load(altered(path, change))


def test_a_result_without_an_energy_comes_back(crf, tmp_path):
    fresh = densecrf.DenseCRF(crf.unary.reshape(3, 6, 5), crf.kernels)
    result = fresh.solve("lp", time_limit=0)
    result.save(tmp_path / "a.npz")
    assert densecrf.Result.load(tmp_path / "a.npz").energy == result.energy == float("inf")


def test_nothing_in_the_file_is_pickled(saved):
    with np.load(saved, allow_pickle=False) as archive:
        assert {array.dtype.kind for array in archive.values()} <= set("iuf")


def test_another_version_is_refused(saved):
    altered(saved, lambda head: head.update(version=2))
    with pytest.raises(ValueError, match=r"result.npz.*format version 2, this densecrf reads 1"):
        densecrf.Result.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.pop("energy"),
        lambda head: head.update(energy="low"),
        lambda head: head.update(trace=3),
        lambda head: head["trace"]["seconds"].append(1.0),
        lambda head: head["trace"].update(extra=[]),
        lambda head: head.update(arrays=["no such array"]),
        lambda head: head.update(best_constant=None),
    ],
)
def test_damaged_json_is_refused(saved, change):
    with pytest.raises(ValueError, match=r"result.npz.*damaged"):
        densecrf.Result.load(altered(saved, change))


def test_labels_that_the_marginals_do_not_have_are_refused(saved):
    with np.load(saved) as archive:
        arrays = dict(archive)
    arrays["labels"] = arrays["labels"] + 5
    np.savez(saved, **arrays)
    with pytest.raises(ValueError, match=r"damaged.*labels from"):
        densecrf.Result.load(saved)


def test_other_files_are_refused(tmp_path, crf):
    path = tmp_path / "other"
    np.savez(tmp_path / "plain.npz", a=np.zeros(3))
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    contents = {
        "text": b"hello",
        "nothing": b"",
        "npy": buffer.getvalue(),
        "pickle": pickle.dumps(crf.solve("mf5")),
        "npz": (tmp_path / "plain.npz").read_bytes(),
        "empty": (tmp_path / "empty.npz").read_bytes(),
    }
    for content in contents.values():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"other.*not a file of Result.save"):
            densecrf.Result.load(path)
    with pytest.raises(FileNotFoundError):
        densecrf.Result.load(tmp_path / "missing.npz")


def test_a_damaged_byte_is_noticed_or_harmless(saved):
    whole = saved.read_bytes()
    expected = densecrf.Result.load(saved)
    for place in range(0, len(whole), 37):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            back = densecrf.Result.load(saved)
        except ValueError:
            continue
        np.testing.assert_array_equal(back.labels, expected.labels)
    for length in range(0, len(whole), 101):
        saved.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"result.npz"):
            densecrf.Result.load(saved)
