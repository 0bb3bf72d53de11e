"""``densecrf adapt`` and ``densecrf fit``, and what `segment` does with models."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from command_line import densecrf, probabilities, said
from densecrf.cli.batch import run_batch
from densecrf.io import write_image
from densecrf.learning.adaptation import look_at
from densecrf.model.parameters import NUMBERS, read_parameters
from tiny_dataset import make_dataset


def with_costs(costs: list[float]) -> str:
    """Return the text of a model's file."""
    return json.dumps({"parameters": {**dict.fromkeys(NUMBERS, 1), "label_costs": costs}})


def with_prior(prior, costs=None):
    parameters = {**dict.fromkeys(NUMBERS, 1), "prior": prior, "label_costs": costs}
    return json.dumps({"version": 1, "parameters": parameters})


def test_adapt_writes_a_model_that_segment_reads(folder):
    result = densecrf("adapt", "images", "--probs", "probs", "--out", "m.json", "--json")
    assert result.exit_code == 0, said(result)
    told = json.loads(result.stdout)
    model = read_parameters(folder / "m.json")
    assert told["images"] == 3
    assert model.provenance["overruled_by_label"] == told["overruled_by_label"]
    again = densecrf("adapt", "images", "--probs", "probs", "--out", "n.json")
    assert again.exit_code == 0, said(again)
    assert (folder / "m.json").read_bytes() == (folder / "n.json").read_bytes()
    result = densecrf(
        "segment", "images", "--probs", "probs", "--model", "m.json", "--method", "mf5"
    )
    assert result.exit_code == 0, said(result)
    record = json.loads((folder / "segmented" / "a.json").read_text())
    assert record["settings"]["model"]["specification"]["model"]["provenance"]["images"] == 3


@pytest.mark.parametrize("seen", [0, 2])
def test_adapt_interrupted_keeps_the_images_seen(folder, monkeypatch, seen):
    def interrupted(items, *arguments, **options):
        batch = run_batch(items[:seen], *arguments, **options)
        batch.interrupted = True
        return batch

    monkeypatch.setattr("densecrf.cli.adapt.run_batch", interrupted)
    result = densecrf("adapt", "images", "--probs", "probs", "--out", "m.json")
    assert result.exit_code == 130, said(result)
    assert "nterrupted" in said(result)
    assert (folder / "m.json").exists() == (seen > 0)
    if seen:
        assert read_parameters(folder / "m.json").provenance["images"] == seen


def test_adapt_names_what_it_cannot_use(folder):
    np.save(folder / "probs" / "b.npy", np.full((2, 3), np.nan))
    result = densecrf("adapt", "images", "--probs", "probs")
    assert result.exit_code == 1
    assert "b.npy" in said(result)


@pytest.mark.parametrize("option", ["--adapt", "--no-adapt", None])
def test_segment_adapts_to_a_folder(folder, option):
    for name in "defg":
        shutil.copy(folder / "images" / "a.png", folder / "images" / f"{name}.png")
        np.save(folder / "probs" / f"{name}.npy", probabilities(ord(name)))
    chosen = [] if option is None else [option]
    result = densecrf("segment", "images", "--probs", "probs", "--method", "mf5", *chosen)
    assert result.exit_code == 0, said(result)
    record = json.loads((folder / "segmented" / "a.json").read_text())
    used = record["settings"]["model"]["specification"]["model"]
    if option == "--no-adapt":
        assert used["provenance"] == {}
    else:
        assert used["provenance"]["images"] == 7
        assert 0.25 <= used["provenance"]["strength"] <= 2
    again = densecrf("segment", "images", "--probs", "probs", "--method", "mf5", *chosen)
    assert "done before" in said(again)


@pytest.mark.parametrize(("method", "by"), [("mf5", "mf5"), ("dc-neg", "lp")])
def test_segment_looks_at_what_mean_field_overrules_if_that_is_asked_for(
    folder, monkeypatch, method, by
):
    made = []

    def look(*arguments, **options):
        made.append(options["method"])
        return look_at(*arguments, **options)

    monkeypatch.setattr("densecrf.cli.adapt.look_at", look)
    command = ["segment", "images", "--probs", "probs", "--adapt", "--method", method]
    assert densecrf(*command).exit_code == 0
    assert made == [by] * 3


def test_segment_reports_changes(folder):
    result = densecrf("segment", "images/a.png", "--probs", "probs/a.npy", "--json")
    (record,) = json.loads(result.stdout)["results"]
    assert record["changes"]["pixels"] == sum(record["changes"]["area_after"])
    assert record["warnings"] == []


@pytest.mark.parametrize(("colour", "warned"), [(90, True), (220, False)])
def test_a_label_lost_in_all_images_is_warned_of(folder, colour, warned):
    """In one image it might have been false: it has no confident pixels."""
    p = np.full((3, 24, 32), 0.05, np.float32)
    p[0] = 0.9
    p[:2, :, 8:18] = np.array([0.2, 0.75])[:, None, None]
    image = np.full((24, 32, 3), 90, np.uint8)
    image[:, 8:18] = colour
    for name in "abcde":
        write_image(folder / "images" / f"{name}.png", image)
        np.save(folder / "probs" / f"{name}.npy", p)
    result = densecrf("segment", "images", "--probs", "probs", "--preset", "afa", "--json")
    assert result.exit_code == 0, said(result)
    told = " ".join(json.loads(result.stdout)["warnings"])
    assert ("over all 5 images label 1 keeps 0 of 1,200 pixels" in told) == warned
    assert ("--strength" in told) == warned


def test_strength_zero_leaves_the_input(folder):
    result = densecrf(
        "segment", "images/a.png", "--probs", "probs/a.npy", "--strength", 0, "--json"
    )
    (record,) = json.loads(result.stdout)["results"]
    assert record["changes"]["changed"] == 0


@pytest.fixture
def dataset(tmp_path):
    return make_dataset(tmp_path / "tiny")


def test_fit_writes_a_model_twice_the_same(dataset, tmp_path):
    out = tmp_path / "m.json"
    result = densecrf("fit", "--data", dataset, "--out", out, "--folds", 2)
    assert result.exit_code == 0, said(result)
    assert "is taken (2 folds" in said(result)
    first = out.read_bytes()
    out.unlink()
    result = densecrf("fit", "--data", dataset, "--out", out, "--folds", 2, "--jobs", 2)
    assert result.exit_code == 0, said(result)
    assert out.read_bytes() == first


def test_fit_names_images_that_it_cannot_learn_from(dataset, tmp_path):
    (dataset / "labels" / "b.png").unlink()
    (dataset / "logits" / "c.npz").write_bytes(b"no archive")
    result = densecrf("fit", "--data", dataset, "--out", tmp_path / "m.json", "--folds", 0)
    assert result.exit_code == 1
    assert "b.png" in said(result)
    assert "c.npz" in said(result)
    assert read_parameters(tmp_path / "m.json").provenance["images"] == 2


def test_fit_without_any_truth_is_refused(dataset, tmp_path):
    shutil.rmtree(dataset / "labels")
    result = densecrf("fit", "--data", dataset, "--out", tmp_path / "m.json")
    assert result.exit_code == 1
    assert "no image is usable for learning" in said(result)
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ('{"version": 7, "parameters": {}}', "has version 7"),
        ('{"parameters": {"sigma": 1}}', "lacks the parameters"),
        (with_costs([1, -2]), "label_costs must be"),
        (with_prior([1, 2]), "prior must hold"),
        (with_prior({"frequencies": [1, 0], "trust": [0, 0], "offsets": [0, 0]}), "prior must"),
        (
            with_prior({name: [1, 1] for name in ("frequencies", "trust", "offsets")}, [1, 1, 1]),
            "label_costs for 3 labels and a prior for 2",
        ),
    ],
)
def test_contradictory_model_files_are_named(folder, text, says):
    (folder / "m.json").write_text(text)
    arguments = ("--probs", "probs/a.npy", "--model", "m.json")
    result = densecrf("segment", "images/a.png", *arguments)
    assert result.exit_code == 2
    assert "m.json" in said(result)
    assert says in said(result)
    assert not (folder / "segmented").exists()


def test_a_model_for_other_labels_is_refused(folder):
    (folder / "m.json").write_text(with_costs([1, 1, 1, 1, 1]))
    result = densecrf("segment", "images/a.png", "--probs", "probs/a.npy", "--model", "m.json")
    assert result.exit_code == 1
    assert "label_costs for 5 labels" in said(result)
