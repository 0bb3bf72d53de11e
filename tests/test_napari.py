"""The napari plugin: in napari where it and a display are there, else with a stand-in for it."""

import os
import sys
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
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


DISPLAY = sys.platform != "linux" or "DISPLAY" in os.environ


class Napari:
    """A viewer of napari, and the widget that it makes of the manifest."""

    def __init__(self):
        from napari import Viewer

        self.viewer = Viewer(show=False)

    def run(self, image, strokes, **place):
        """Return the layer that comes out, once it has been added."""
        from qtpy.QtCore import QEventLoop

        self.viewer.add_image(image, **place)
        self.viewer.add_labels(strokes, name="mine", **place)
        _, widget = self.viewer.window.add_plugin_dock_widget("densecrf", "Scribbles to labels")
        loop = QEventLoop()
        self.viewer.layers.events.inserted.connect(lambda _: loop.quit())
        widget()
        loop.exec()
        loop.processEvents()
        return self.viewer.layers[-1]

    def status(self):
        return self.viewer.window._qt_window.statusBar()._status.text()

    def status_at(self, layer, place):
        return layer.get_status(place)["coordinates"]

    def close(self):
        self.viewer.close()


class StandIn:
    """What the plugin uses of napari, without threads."""

    def __init__(self, monkeypatch):
        self.viewer = SimpleNamespace(status="")
        napari = SimpleNamespace(current_viewer=lambda: self.viewer)
        monkeypatch.setitem(sys.modules, "napari", napari)
        threading = SimpleNamespace(thread_worker=self.thread_worker)
        monkeypatch.setitem(sys.modules, "napari.qt.threading", threading)

    def thread_worker(self, function, connect):
        def start():
            self.returned = function()
            connect["returned"](self.returned)

        return start

    def run(self, image, strokes, scale=(1, 1), translate=(0, 0)):
        """Return the layer that comes out."""
        place = {"scale": scale, "translate": translate, "rotate": None, "shear": 0, "affine": None}
        picture = SimpleNamespace(data=image, rgb=image.ndim == 3, multiscale=False)
        picture.contrast_limits = (
            [0, 255] if image.dtype == np.uint8 else [image.min(), image.max()]
        )
        plugin.scribbles_to_labels(picture, SimpleNamespace(data=strokes, name="mine", **place))
        labels, about, kind = self.returned
        assert kind == "labels"
        return SimpleNamespace(data=labels, **about)

    def status(self):
        return self.viewer.status

    def status_at(self, layer, place):
        row = layer.features["index"].tolist().index(layer.data[place])
        return f"densecrf: {layer.features['densecrf'][row]}"

    def close(self):
        pass


@pytest.fixture
def opened(monkeypatch):
    """Return a viewer that is open."""
    napari = Napari() if find_spec("napari") and DISPLAY else StandIn(monkeypatch)
    yield napari
    napari.close()


def test_strokes_become_a_labels_layer_and_a_status(opened):
    layer = opened.run(scene(), STROKES)
    assert layer.name == "mine (densecrf)"
    assert set(np.unique(layer.data)) == {7, 300}
    np.testing.assert_array_equal(layer.data[STROKES != 0], STROKES[STROKES != 0])
    assert "proven" in layer.metadata["certificate"]
    assert opened.status() == f"densecrf: {layer.metadata['certificate']}"
    for place in (10, 20), (90, 20):  # napari takes the status over once the cursor is moved
        assert opened.status() in opened.status_at(layer, place)


def test_the_labels_lie_where_the_scribbles_lie(opened):
    layer = opened.run(scene(), STROKES, scale=(2, 3), translate=(5, 6))
    assert (tuple(layer.scale), tuple(layer.translate)) == ((2, 3), (5, 6))


def test_contrast_limits_are_black_and_white(opened):
    grey = scene()[..., 1]
    black, white = int(grey.min()), int(grey.max())
    _, expected = plugin.solve(grey, STROKES, "default", 1.0, 20.0, (black, white))
    layer = opened.run(np.uint16(grey) * 100 + 3000, STROKES)
    np.testing.assert_array_equal(layer.data, expected)


@pytest.mark.parametrize("other", [lambda image: image / 255, lambda image: np.uint16(image) * 257])
def test_the_type_of_the_image_does_not_matter(other):
    _, expected = plugin.solve(scene(), STROKES, "default", 1.0, 20.0)
    _, labels = plugin.solve(other(scene()), STROKES, "default", 1.0, 20.0)
    np.testing.assert_array_equal(labels, expected)


def test_volumes_are_solved_as_volumes():
    volume = np.zeros((6, 16, 16), np.uint8)
    volume[:, :, 8:] = 200
    strokes = np.zeros(volume.shape, int)
    strokes[3, 8, 2], strokes[3, 8, 13] = 1, 2
    _, labels = plugin.solve(volume, strokes, "default", 1.0, 20.0)
    np.testing.assert_array_equal(labels, np.where(volume > 0, 2, 1))


@pytest.mark.parametrize(("label", "drawn"), [(7, "only label 7"), (0, "no strokes")])
def test_too_few_labels_are_named(label, drawn):
    with pytest.raises(ValueError, match=f"{drawn}.*at least two"):
        plugin.solve(scene(), np.minimum(STROKES, label), "default", 1.0, 20.0)


def test_the_manifest_names_what_there_is():
    text = (Path(densecrf.__file__).parent / "napari.yaml").read_text("utf-8")
    (named,) = [line.split(": ")[1] for line in text.splitlines() if "python_name" in line]
    module, name = named.split(":")
    assert callable(getattr(import_module(module), name))
    (entry,) = entry_points(group="napari.manifest", name="densecrf")
    assert entry.value == "densecrf:napari.yaml"
