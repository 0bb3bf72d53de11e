"""Refinements to compare with: correct where that can be checked, and one table of all."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from command_line import said
from densecrf.io import write_labels
from densecrf.model.parameters import write_parameters
from densecrf.model.presets import PRESETS
from experiments import other_methods as other
from experiments.alternatives import trimap
from experiments.commands import app
from tiny_dataset import make_dataset


def run(*arguments):
    return CliRunner().invoke(app, ["alternatives", *map(str, arguments)])


def test_an_expansion_move_is_optimal():
    pytest.importorskip("maxflow")
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (2, 4, 3)).astype(np.uint8)
    unary = rng.normal(size=(3, 8))
    pairs, weights = other._contrast_sensitive(image, 1.0)

    def energy(x):
        differ = x[pairs[0]] != x[pairs[1]]
        return unary[x, np.arange(8)].sum() + (weights * differ).sum()

    for _ in range(20):
        labels, label = rng.integers(0, 3, 8), int(rng.integers(0, 3))
        found = other._expand(unary, pairs, weights, labels, label, 8)
        moves = itertools.product((False, True), repeat=8)
        best = min(energy(np.where(move, label, labels)) for move in moves)
        assert energy(found) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("package", "method", "settings"),
    [
        ("maxflow", "alpha_expansion", {"smooth": 1.0}),
        ("cv2", "guided_filter", {"radius": 2, "eps": 1e-3}),
        ("cv2", "global_smoother", {"smooth": 50.0, "color": 5.0}),
    ],
)
def test_noise_is_smoothed_within_borders(package, method, settings):
    pytest.importorskip(package)
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 12)[None].repeat(24, 0)
    image = np.repeat(np.where(truth == 0, 40, 200)[..., None], 3, 2).astype(np.uint8)
    unary = np.where(np.arange(2)[:, None, None] == truth, 0.0, 1.5)
    unary = (unary + rng.normal(0, 0.8, unary.shape)).astype(np.float32)
    labels = getattr(other, method)(unary, image, **settings)
    assert (labels == truth).mean() > max(0.97, (unary.argmin(0) == truth).mean())


def test_trimap_leaves_void_out():
    truth = np.array([[0, 0, 255, 1, 1, 0, 0]])
    np.testing.assert_array_equal(trimap(truth, 255, 1), [[0, 0, 0, 0, 1, 1, 0]])


@pytest.mark.slow
def test_the_command_writes_a_table_and_goes_on(tmp_path):
    data = make_dataset(tmp_path / "tiny")
    write_parameters(tmp_path / "fitted.json", PRESETS["deeplab"])
    arguments = ("--data", data, "--test", "train", "--out", tmp_path / "o", "--json")
    arguments = (*arguments, "--fitted", tmp_path / "fitted.json", "--jobs", "2")
    first = run(*arguments)
    assert first.exit_code == 0, said(first)
    rows = json.loads(first.stdout)["rows"]
    assert rows[0]["method"] == "input"
    assert rows[0]["IoU gain"].startswith("+0.00")
    assert [row["method"] for row in rows[-2:]] == ["lp, adapted", "lp, fitted"]
    again = run(*arguments)
    assert json.loads(again.stdout)["rows"] == rows  # seconds included: nothing ran anew


def test_a_split_without_truth_is_refused(tmp_path):
    dataset = make_dataset(tmp_path / "tiny")
    for path in (dataset / "labels").iterdir():
        write_labels(path, np.full((16, 20), 255))
    splits = ("--validation", "train", "--test", "val")
    result = run("--data", dataset, *splits, "--no-learn", "--out", tmp_path)
    assert result.exit_code == 1
    assert "none of the 2 images of a split has a pixel with a known label" in said(result)
    assert not list(tmp_path.glob("alternatives-*"))
