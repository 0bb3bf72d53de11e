"""Every way in makes the same energy of the same arguments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import densecrf
from command_line import densecrf as command
from command_line import said
from densecrf.app.document import Document, ModelSettings, default_labels
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.pictures import Picture
from densecrf.app.strokes import Stroke
from densecrf.io import read_labels, write_image
from densecrf.model.label_prior import LabelPrior
from densecrf.model.parameters import Parameters, write_parameters
from densecrf.model.presets import PRESETS
from densecrf.model.scribbles import scribble_unary
from densecrf.refinement import build
from densecrf.torch import DenseCRF
from densecrf.widget import Scribble
from large_scenes import crowd

IMAGE, P = crowd()
P = np.maximum(P, 0.01) / np.maximum(P, 0.01).sum(0)
#: Deviations follow the size of the image.
MODEL = Parameters(2, 3, 5, 20, 5, scale_sigmas=True, pixels=2000, label_costs=(0.5, 1.0, 0.7))


def refined():
    result = densecrf.refine(IMAGE, P, model=MODEL)
    return result.energy, result.labels


def refined_with_others():
    (result,) = densecrf.refine_many([IMAGE], [P], model="m.json")
    return result.energy, result.labels


def tiled():
    result = densecrf.large.refine("i.png", "p.npy", model="m.json", tile=30)
    return result.energy, result.labels


def segmented(*options):
    out = "o.npy" if options else "o.png"
    arguments = ["i.png", "--probs", "p.npy", "--model", "m.json", "--out", out, "--json"]
    result = command("segment", *arguments, *options)
    assert result.exit_code == 0, said(result)
    labels = np.load(out) if options else read_labels(out)
    return json.loads(result.stdout)["results"][0]["energy"], labels


def segmented_by_tiles():
    return segmented("--tile", 64)


def by_torch():
    layer = DenseCRF.from_model(MODEL, shape=IMAGE.shape[:2])
    image = torch.from_numpy(np.moveaxis(IMAGE, -1, 0).astype(np.float32))[None]
    result = layer.solve(logits=torch.from_numpy(np.log(P))[None], image=image)
    return result.energy[0], result.labels[0].numpy()


def drawn(strokes, labels):
    """Return a document of the app."""
    settings = ModelSettings(preset="file")
    document = Document("i.png", IMAGE.shape[:2], default_labels(labels), settings)
    document.replace_strokes([Stroke.parse(stroke) for stroke in strokes])
    return Snapshot.of(document)


PICTURE = Picture(Path("i.png"), IMAGE, 1, IMAGE.shape[:2])


def in_the_app():
    energies = Energies(PICTURE, P, file=MODEL)
    crf, _ = energies.problem(drawn([], len(P)))
    result = crf.solve("lp")
    return result.energy, result.labels


WAYS = (refined, refined_with_others, tiled, segmented, segmented_by_tiles, by_torch, in_the_app)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_makes_the_same_energy(way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_image("i.png", IMAGE)
    np.save("p.npy", P)
    write_parameters("m.json", MODEL)
    energy, labels = way()
    crf = build(IMAGE, P, model=MODEL)
    assert energy == pytest.approx(crf.energy(labels), rel=1e-5)
    assert energy <= 1.01 * crf.solve("lp").energy


def test_strokes_make_the_same_energy_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [[[5, 5], [20, 5]], [[45, 30], [45, 40]]]
    common = {"tool": "brush", "size": 2}
    strokes = [{**common, "label": n, "points": line} for n, line in enumerate(lines)]
    snapshot = drawn(strokes, 2)
    model = replace(MODEL, label_costs=None)
    crf = build(IMAGE, scribble_unary(IMAGE, snapshot.raster), model=model, kind="energies", axis=0)
    write_image("i.png", IMAGE)
    write_image("s.png", snapshot.raster)
    write_parameters("m.json", model)
    own, _ = Energies(PICTURE, file=model).problem(snapshot)
    arguments = ["i.png", "--scribbles", "s.png", "--model", "m.json", "--out", "o.png", "--json"]
    told = json.loads(command("segment", *arguments).stdout)["results"][0]
    labels = read_labels("o.png")
    assert told["energy"] == pytest.approx(crf.energy(labels), rel=1e-9)
    assert own.energy(labels) == pytest.approx(crf.energy(labels), rel=1e-9)
    canvas = Scribble(IMAGE, 2, model=model, strokes=strokes)
    notebook, _ = canvas._live.energies.problem(Snapshot.of(canvas._document))
    canvas.close()
    assert notebook.energy(labels) == pytest.approx(crf.energy(labels), rel=1e-9)


PRIOR = LabelPrior((0.5, 0.3, 0.2), (0.4, 0.0, 0.2), (0.1, -0.2, 0.0))


@pytest.mark.parametrize("model", [PRESETS["default"], replace(MODEL, prior=PRIOR)])
def test_the_app_reads_scores_and_models_as_refine_does(model):
    logits = np.log(P)[:, ::2, ::2]  # of a lower resolution, label axis last
    energies = Energies(PICTURE, np.moveaxis(logits, 0, -1), "logits", model)
    own, _ = energies.problem(drawn([], len(P)))
    crf = build(IMAGE, logits, kind="logits", model=model)
    np.testing.assert_array_equal(own.unary, crf.unary)
    labels = crf.solve("mf5").labels
    assert own.energy(labels) == pytest.approx(crf.energy(labels), rel=1e-6)


def test_scores_of_an_image_that_the_app_reduces_fit_its_file():
    half = Picture(Path("i.png"), IMAGE[::2, ::2], 2, IMAGE.shape[:2])
    energies = Energies(half, np.moveaxis(np.log(P), 0, -1), "logits")
    assert energies.axis == 2
    assert energies.unary.shape == (len(P), *half.shape)
