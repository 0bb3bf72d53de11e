"""The napari plugin, with a stand-in for napari where it is not installed."""

import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import densecrf
from densecrf import napari as plugin
from scribbling import scene

STROKES = np.zeros((96, 128), int)
STROKES[8:12, 10:110] = 7
STROKES[84:88, 10:110] = 300  # napari's numbers need not be small


@pytest.fixture
def viewer(monkeypatch):
    """Return the viewer that is open."""
    opened = SimpleNamespace(status="")
    monkeypatch.setitem(sys.modules, "napari", SimpleNamespace(current_viewer=lambda: opened))
    return opened


def test_strokes_become_a_labels_layer_and_a_status(viewer):
    layers = SimpleNamespace(data=scene()), SimpleNamespace(data=STROKES, name="mine")
    labels, about, kind = plugin.scribbles_to_labels(*layers)
    assert (kind, about["name"]) == ("labels", "mine (densecrf)")
    assert set(np.unique(labels)) == {7, 300}
    np.testing.assert_array_equal(labels[STROKES != 0], STROKES[STROKES != 0])
    assert viewer.status.startswith("densecrf: ")
    assert "proven" in viewer.status
    assert about["metadata"]["certificate"] == viewer.status


def test_volumes_are_solved_as_volumes():
    volume = np.zeros((6, 16, 16), np.uint8)
    volume[:, :, 8:] = 200
    strokes = np.zeros(volume.shape, int)
    strokes[3, 8, 2], strokes[3, 8, 13] = 1, 2
    _, labels = plugin.solve(volume, strokes, "default", 1.0, 20.0)
    np.testing.assert_array_equal(labels, np.where(volume > 0, 2, 1))


def test_one_label_says_what_is_missing():
    with pytest.raises(ValueError, match="at least two"):
        plugin.solve(scene(), np.minimum(STROKES, 7), "default", 1.0, 20.0)


def test_the_manifest_names_what_there_is():
    text = (Path(densecrf.__file__).parent / "napari.yaml").read_text("utf-8")
    (named,) = [line.split(": ")[1] for line in text.splitlines() if "python_name" in line]
    module, name = named.split(":")
    assert callable(getattr(import_module(module), name))
    (entry,) = entry_points(group="napari.manifest", name="densecrf")
    assert entry.value == "densecrf:napari.yaml"
