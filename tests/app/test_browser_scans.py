"""Scans and satellite images in a real browser: planes, window and level, bands."""

import json

import numpy as np
import pytest

from densecrf.app.document import Document
from densecrf.app.store import STATE
from scans import write_series

nibabel = pytest.importorskip("nibabel")
tifffile = pytest.importorskip("tifffile")


def ball(depth=10):
    """Return thick slices with a ball of 60 units in -100, and noise."""
    z, y, x = np.mgrid[:depth, :48, :64]
    centre = (depth - 1) / 2
    inside = ((z - centre) * 4 / 16) ** 2 + ((y - 24) / 16) ** 2 + ((x - 32) / 16) ** 2 < 1
    noise = np.random.default_rng(0).normal(0, 12, inside.shape)
    return (np.where(inside, 60, -100) + noise).astype(np.int16), inside


def until(tab, expression):
    """Wait for something to be true of the page, which allows no strings as programs."""
    for _ in range(600):
        if tab.tab.evaluate(expression):
            return
        tab.tab.wait_for_timeout(100)
    raise AssertionError(expression)


def write_scan(path):
    values, inside = ball()
    nibabel.save(nibabel.Nifti1Image(np.swapaxes(values, 0, 2), np.diag([-1.0, -1, -4, 1])), path)
    return inside


def test_a_scan_is_drawn_on_in_three_planes(server, tmp_path, page):
    inside = write_scan(tmp_path / "scan.nii.gz")
    tab = page().open(server(tmp_path).url)
    tab.press("1")
    tab.draw((0.1, 0.1), (0.9, 0.1))
    tab.press("x")
    tab.wait(axis=1, slice=24)
    assert tab.tab.evaluate("window.densecrf.view.aspect") == 4
    tab.press(".")
    tab.wait(slice=25)
    tab.press("[", "[", "[", "2")
    tab.draw((0.4, 0.5), (0.6, 0.55))
    tab.press("x")
    tab.wait(axis=2, slice=32)
    crossing = tab.raster().reshape(10, 48)  # slices and rows: the others are seen across
    assert (crossing == 0).any()
    assert (crossing == 1).any()
    tab.press("l")
    tab.draw((0.45, 0.45), (0.55, 0.5))
    tab.wait(strokes=3, stage="certified", revision=3, saved="yes")
    answer = tab.answer().reshape(inside.shape)
    assert (answer == inside).mean() > 0.98
    state = json.loads((tmp_path / STATE / "scan.nii.gz.json").read_text())
    document = Document.from_json(state, "scan.nii.gz", inside.shape)
    assert [(each.axis, each.slice) for each in document.strokes] == [(0, 0), (1, 25), (2, 32)]
    shown = tab.tab.evaluate("Array.from(window.densecrf.layer().volume)")
    np.testing.assert_array_equal(np.reshape(shown, inside.shape), document.raster())
    tab.screenshot("scan-sagittal")
    tab.press("Control+z", "Control+z")
    tab.wait(strokes=1, axis=1, slice=25)  # where the undone stroke was
    assert tab.errors == []


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(1400, 900, "light"), (390, 844, "light"), (1400, 900, "dark")]
)
def test_window_and_level_of_a_series(server, tmp_path, page, width, height, scheme):
    pytest.importorskip("pydicom")
    values, _ = ball()
    write_series(tmp_path, values + 1024, spacing=(4.0, 1.0, 1.0))
    tab = page(width, height, scheme).open(server(tmp_path).url)
    assert tab.tab.locator("#images option").count() == 1
    assert tab.tab.input_value("#level") == "40"
    tab.press("1")
    tab.draw((0.1, 0.1), (0.9, 0.1))
    tab.press("x")
    tab.wait(axis=1)
    tab.press("2")
    tab.draw((0.45, 0.5), (0.55, 0.55))
    tab.wait(strokes=2, stage="certified", saved="yes")
    bright = "window.densecrf.view.image.src"
    before = tab.tab.evaluate(bright)
    tab.tab.select_option("#stretch", "lung")
    until(tab, f"{bright} !== {json.dumps(before)}")
    assert tab.tab.input_value("#level") == "-600"
    assert tab.tab.input_value("#width") == "1500"
    assert tab.data("axis") == "1"  # it stays where it was
    tab.wait(strokes=2, stage="certified", saved="yes")
    tab.tab.locator("#level").fill("-20")
    until(tab, "document.getElementById('stretch').value === 'window'")
    until(tab, f"decodeURIComponent({bright}).includes('-770')")
    tab.tab.locator("#values").scroll_into_view_if_needed()
    tab.screenshot(f"series-{width}-{scheme}")
    tab.tab.reload()
    until(tab, "document.getElementById('level').value === '-20'")
    assert tab.errors == []


def test_bands_of_a_satellite_image_are_chosen(server, tmp_path, page):
    y, x = np.mgrid[:60, :80]
    noise = np.random.default_rng(0).normal(0, 15, (60, 80, 5))
    bands = 400 + noise
    bands[..., 4] += 1500 * (x > 40)  # seen in the infrared alone
    bands[..., 0] += 200 * (y > 30)
    tifffile.imwrite(
        tmp_path / "scene.tif",
        bands.astype(np.uint16),
        photometric="minisblack",
        planarconfig="contig",
    )
    tab = page().open(server(tmp_path).url)
    assert tab.tab.locator("#bands select").count() == 3
    before = tab.tab.evaluate("window.densecrf.view.image.src")
    tab.tab.select_option("#bands select >> nth=0", "5")
    until(tab, f"window.densecrf.view.image.src !== {json.dumps(before)}")
    tab.tab.locator("canvas#canvas").focus()
    tab.press("1")
    tab.draw((0.1, 0.2), (0.2, 0.8))
    tab.press("2")
    tab.draw((0.8, 0.2), (0.9, 0.8))
    tab.wait(strokes=2, stage="certified", revision=2)
    answer = tab.answer().reshape(60, 80)
    assert (answer == (x > 40)).mean() > 0.98
    tab.screenshot("bands")
    assert tab.errors == []
