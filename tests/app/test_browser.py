"""The page in a real browser: draw, see, undo, export, reload and find everything again."""

import io
import json
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser_tab import ORIGIN, own
from densecrf.app.document import Document
from densecrf.app.store import STATE
from densecrf.io import read_labels, write_image
from scribbling import scene

SKY, GRASS = ((0.1, 0.1), (0.9, 0.12)), ((0.1, 0.9), (0.9, 0.88))
READABLE = Path(__file__).with_name("readable.js").read_text().partition("\n")[2].strip()
BALL = ((0.48, 0.45), (0.52, 0.55))
CLEARED = "(document.getElementById('clear').click(), document.body.dataset.state)"


def draw_three(page):
    for key, stroke in zip("123", (SKY, GRASS, BALL), strict=True):
        page.press(key)
        page.draw(*stroke)
    page.wait(stage="certified", strokes=3, saved="yes", revision=3)


def test_draw_undo_export_reload(server, folder, page, tmp_path):
    running = server(folder)
    tab = page().open(running.url)
    draw_three(tab)
    answer = tab.answer().reshape(96, 128)
    assert (answer[8, 64], answer[88, 64], answer[48, 64]) == (0, 1, 2)
    assert tab.data("state") == "current"
    assert tab.tab.inner_text("#state") == "up to date"
    tab.tab.click("#solver summary")
    assert tab.tab.inner_text("#gap").endswith("%")

    # Undo and redo, by key and by button.
    tab.press("Control+z")
    tab.wait(strokes=2, stage="certified", revision=4)
    assert set(np.unique(tab.answer())) == {0, 1}
    tab.tab.click("#redo")
    tab.wait(strokes=3, stage="certified", revision=5)
    assert set(np.unique(tab.answer())) == {0, 1, 2}

    # Export: the labels that are shown.
    tab.tab.click("#export")
    with tab.tab.expect_download() as download:
        tab.tab.click("[data-export=labels]")
    assert download.value.suggested_filename == "first.labels.png"
    download.value.save_as(tmp_path / "labels.png")
    exported = read_labels(tmp_path / "labels.png")
    tab.tab.get_by_text("is saved in your downloads").wait_for()
    np.testing.assert_array_equal(exported.ravel(), tab.answer())
    tab.press("Escape")

    # Reload: strokes, answer and history are there.
    raster = tab.raster()
    tab.tab.reload()
    tab.wait(strokes=3, stage="certified")
    np.testing.assert_array_equal(tab.raster(), raster)
    tab.press("Control+z")
    tab.wait(strokes=2)
    assert tab.errors == []


BOX = ((0.27, 0.2), (0.73, 0.8))


def object_of(answer):
    """Return how well an answer has the ball of the scene, as intersection over union."""
    y, x = np.mgrid[:96, :128]
    ball = (y - 48) ** 2 + (x - 64) ** 2 < 24**2
    found = answer.reshape(96, 128) == 2
    return (found & ball).sum() / (found | ball).sum()


def test_a_box_finds_the_object_in_it(server, folder, page, tmp_path):
    """Undone, saved, reloaded, exported like all strokes."""
    running = server(folder)
    tab = page().open(running.url)
    tab.press("3", "t")
    tab.draw(*BOX)
    tab.wait(strokes=2, saved="yes", revision=2, stage="certified")  # what is around, and the ball
    assert object_of(tab.answer()) > 0.95
    assert set(np.unique(tab.answer())) == {0, 2}
    tab.screenshot("box")
    tab.press("Control+z")
    tab.wait(strokes=1, saved="yes")
    tab.press("Control+Shift+z", "2", "b")
    tab.draw(*GRASS)
    tab.wait(strokes=3, saved="yes", state="current")
    tab.tab.reload()
    tab.wait(strokes=3, state="current")
    assert object_of(tab.answer()) > 0.95
    tab.tab.click("#export")
    with tab.tab.expect_download() as download:
        tab.tab.click("[data-export=labels]")
    download.value.save_as(tmp_path / "labels.png")
    assert object_of(read_labels(tmp_path / "labels.png")) > 0.95
    tab.press("Escape", "t")
    tab.draw((0.0, 0.0), (1.0, 1.0))
    tab.tab.get_by_text("give a box around the object").wait_for()
    assert tab.errors == [] or all("422" in error for error in tab.errors)


def test_a_box_is_drawn_with_a_finger(server, folder, page):
    tab = page(width=390, height=800).open(server(folder).url)
    tab.press("3", "t")
    finger = tab.tab.context.new_cdp_session(tab.tab)
    (x0, y0), (x1, y1) = (tab.at(*corner) for corner in BOX)
    steps = [((1 - t) * x0 + t * x1, (1 - t) * y0 + t * y1) for t in (0, 0.5, 1)]
    for kind, at in zip(("touchStart", "touchMove", "touchMove"), steps, strict=True):
        points = [{"x": at[0], "y": at[1]}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    tab.wait(strokes=2, saved="yes", state="current")
    assert object_of(tab.answer()) > 0.95


def test_a_networks_scores_are_dropped_on_an_image_and_corrected(server, folder, page, tmp_path):
    """Kept beside the strokes; objects are refused with a reason; the export repeats itself."""
    scores = np.full((3, 24, 32), 0.1, np.float32)
    scores[0, :12] = scores[1, 12:] = 0.8
    np.savez(tmp_path / "net.npz", probs=scores)
    labels = np.zeros((96, 128), np.int64)
    labels[:, 64:] = 1
    np.save(tmp_path / "labels.npy", labels)
    tab = page().open(server(folder).url)
    tab.tab.set_input_files("#file", tmp_path / "net.npz")
    tab.wait(image="first.png", state="current", stage="certified")
    answer = tab.answer().reshape(96, 128)
    assert (answer[8, 64], answer[88, 64]) == (0, 1)
    tab.press("3")
    tab.draw(*BALL)
    tab.wait(strokes=1, saved="yes", state="current")
    assert tab.answer().reshape(96, 128)[48, 64] == 2
    tab.press("a")
    tab.tab.get_by_text("tell classes apart, not objects").wait_for()
    tab.tab.reload()
    tab.wait(strokes=1, state="current")
    assert set(np.unique(tab.answer())) == {0, 1, 2}
    tab.tab.click("#export")
    with tab.tab.expect_download() as download:
        tab.tab.click("[data-export=all]")
    download.value.save_as(tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        archive.extractall(tmp_path / "all")
    program = [sys.executable, "first.reproduce.py"]
    subprocess.run(program, cwd=tmp_path / "all", check=True, capture_output=True)
    repeated = read_labels(tmp_path / "all" / "first.repeated.png")
    np.testing.assert_array_equal(repeated, read_labels(tmp_path / "all" / "first.labels.png"))
    tab.press("Escape")
    tab.tab.set_input_files("#file", tmp_path / "labels.npy")
    tab.until(lambda: tab.answer().size and tab.answer().reshape(96, 128)[8, 120] == 1)
    assert tab.errors == []


def test_an_array_that_does_not_fit_says_why(client, folder):
    packed = io.BytesIO()
    np.savez(packed, probs=np.full((2, 3, 4, 5), 0.5, np.float32))
    send = {"headers": {"origin": ORIGIN}, "content": packed.getvalue()}
    answer = client.post(own("drop?name=first.png&file=net.npz"), **send)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("net.npz: ")
    packed = io.BytesIO()
    np.save(packed, np.full((96, 128), 9))
    send["content"] = packed.getvalue()
    answer = client.post(own("drop?name=first.png&file=mask.npy"), **send)
    assert "mask.npy: has label 9; the folder's are 0 to 3" in answer.json()["error"]
    assert not list((folder / STATE).glob("*.scores.*"))


def test_killed_and_started_again_nothing_is_lost(server, folder, page):
    running = server(folder)
    tab = page().open(running.url)
    tab.press("1")
    tab.draw(*SKY)
    tab.press("2")
    tab.draw(*GRASS)
    tab.wait(strokes=2, saved="yes")
    raster = tab.raster()
    running.stop(signal.SIGKILL)
    tab.wait(connected="no")
    again = page().open(server(folder).url)
    again.wait(strokes=2, stage="certified")
    np.testing.assert_array_equal(again.raster(), raster)


def test_page_and_server_rasterise_alike(server, folder, page):
    tab = page().open(server(folder).url)
    tab.press("]", "]", "2", "b")
    tab.draw((0.2, 0.2), (0.5, 0.7), (0.8, 0.1))
    tab.press("[", "[", "[", "[", "3", "l")
    tab.draw((0.1, 0.8), (0.9, 0.3))
    tab.press("4", "r")
    tab.draw((0.6, 0.6), (0.95, 0.9))
    tab.press("e")
    tab.draw((0.5, 0.5), (0.8, 0.8))
    tab.press("1", "f")
    tab.draw((0.02, 0.02))
    for key, points in (
        ("p", ((0.1, 0.2), (0.35, 0.4), (0.2, 0.7))),
        ("w", ((0.4, 0.2), (0.6, 0.3))),
    ):
        tab.press("3", key)
        for point in points:
            tab.tab.mouse.click(*tab.at(*point))
        tab.tab.mouse.click(*tab.at(0.9, 0.9))
        tab.press("Backspace", "Enter")
    tab.wait(strokes=7, saved="yes")
    state = json.loads((folder / STATE / "first.png.json").read_text())
    document = Document.from_json(state, "first.png", (96, 128))
    assert [stroke.tool for stroke in document.strokes] == [
        "brush",
        "line",
        "box",
        "eraser",
        "fill",
        "polygon",
        "polygon",
    ]
    np.testing.assert_array_equal(tab.raster(), document.raster().ravel())
    for _ in range(5):
        tab.press("Control+z")
    tab.press("Control+Shift+z")
    tab.wait(strokes=3, saved="yes")
    document.strokes = document.strokes[:3]
    np.testing.assert_array_equal(tab.raster(), document.raster().ravel())


def test_labels_of_the_folder_are_changed_in_every_way(server, folder, page):
    running = server(folder)
    tab = page().open(running.url)
    tab.tab.click("#add-label")
    tab.tab.fill("#labels li:nth-child(5) input[type=text]", "cat")
    tab.tab.press("#labels li:nth-child(5) input[type=text]", "Enter")
    tab.tab.evaluate(
        "(() => { const c = document.querySelector('#labels li:nth-child(5) input[type=color]');"
        " c.value = '#123456'; c.dispatchEvent(new Event('change')); })()"
    )
    tab.press("5")
    tab.draw(*BALL)
    tab.tab.click("#labels li:nth-child(5) [aria-label='Lock cat']")
    tab.press("1")
    tab.draw(*BALL)
    tab.wait(strokes=2, saved="yes")
    assert set(np.unique(tab.raster())) == {4, 255}
    project = json.loads((folder / STATE / "project.json").read_text())
    cat = project["labels"][4]
    assert (cat["name"], cat["color"], cat["locked"]) == ("cat", "#123456", True)

    # A key of its own, another place; then two others are merged and one deleted.
    tab.tab.click("[aria-label='Change cat']")
    tab.tab.fill("#label-key", "k")
    tab.tab.click("#label-up")
    tab.screenshot("label-dialog")
    tab.tab.click("#label-dialog form button")
    tab.press("1", "k")
    tab.draw((0.2, 0.8), (0.3, 0.8))
    tab.wait(strokes=3, saved="yes")
    assert set(np.unique(tab.raster())) == {3, 255}
    tab.tab.click("[aria-label='Change label 3']")
    tab.tab.select_option("#label-into", label="label 4")
    tab.tab.click("#label-merge")
    tab.tab.once("dialog", lambda asked: asked.accept())
    tab.tab.click("[aria-label='Change label 1']")
    tab.tab.click("#label-delete")
    tab.tab.check("#background")
    tab.wait(strokes=2, saved="yes")  # the other was one of label 1
    assert set(np.unique(tab.raster())) == {1, 255}
    names = [
        label["name"]
        for label in json.loads((folder / STATE / "project.json").read_text())["labels"]
    ]
    assert names == ["label 2", "cat", "label 4"]
    tab.press("PageDown")
    tab.wait(image="second.png")
    assert tab.tab.input_value("#labels li:nth-child(2) input[type=text]") == "cat"
    assert tab.tab.is_checked("#background")
    assert tab.errors == []


def test_two_tabs_draw_on_one_image(server, folder, page):
    url = server(folder).url
    one, two = page().open(url), page().open(url)
    one.press("1")
    one.draw(*SKY)
    two.wait(strokes=1)
    two.press("2")
    two.draw(*GRASS)
    one.wait(strokes=2, stage="certified")
    two.wait(strokes=2, stage="certified")
    np.testing.assert_array_equal(one.raster(), two.raster())


def test_two_servers_draw_on_one_image(server, folder, page):
    one, two = page().open(server(folder).url), page().open(server(folder).url)
    one.press("1")
    one.draw(*SKY)
    one.wait(strokes=1, saved="yes")
    two.press("2")
    two.draw(*GRASS)
    two.wait(strokes=2, stage="certified", saved="yes")
    one.wait(strokes=2, stage="certified")
    one.tab.get_by_text("Another densecrf app works on this image").wait_for()
    np.testing.assert_array_equal(one.raster(), two.raster())


def test_next_image_and_back(server, folder, page):
    tab = page().open(server(folder).url)
    draw_three(tab)
    shown = tab.answer()
    tab.press("PageDown")
    tab.wait(image="second.png", strokes=0)
    kept = read_labels(folder / STATE / "first.png.labels.png")
    assert (kept.ravel() == shown).mean() > 0.99  # a better answer may have come meanwhile
    assert tab.answer().size == 0
    tab.press("PageUp")
    tab.wait(image="first.png", strokes=3, stage="certified")
    assert tab.answer().size


def test_comparison_and_sliders(server, folder, page):
    tab = page().open(server(folder).url)
    draw_three(tab)
    tab.tab.click("#solver summary")
    tab.tab.click("#compare")
    tab.wait(compared="yes")
    assert "mean field: energy" in tab.tab.inner_text("#compare-numbers")
    tab.tab.click("#model summary")
    tab.tab.fill("#strength", "2")
    tab.wait(saved="yes")
    state = json.loads((folder / STATE / "first.png.json").read_text())
    assert state["settings"]["strength"] == pytest.approx(4)
    tab.tab.fill("#min_area", "5")
    tab.wait(saved="yes")
    state = json.loads((folder / STATE / "first.png.json").read_text())
    assert state["settings"]["min_area"] == 31
    assert state["settings"]["compare"] is True


def test_a_folder_is_worked_through_by_keyboard(server, folder, page):
    write_image(folder / "third.png", scene(seed=2))
    tab = page().open(server(folder).url)
    draw_three(tab)
    tab.wait(labelled=3)
    tab.press("d")
    tab.wait(status="done", saved="yes")
    tab.draw(*BALL)  # it is locked
    tab.press("Control+z", "n")
    tab.wait(image="second.png", strokes=0)
    tab.press("q", "n")
    tab.wait(image="third.png")
    tab.press("g")
    tab.tab.wait_for_selector("#gallery:not([hidden])")
    tab.screenshot("gallery")
    states = tab.tab.eval_on_selector_all(".tile", "all => all.map(x => x.dataset.status)")
    assert states == ["done", "doubtful", "todo"]
    tab.press("ArrowLeft", "ArrowLeft", "Enter")
    tab.wait(image="first.png", strokes=3, status="done")
    tab.press("g")
    tab.tab.click("[data-filter=doubtful]")
    tab.tab.wait_for_selector(".tile:only-child")
    tab.press("Enter")
    tab.wait(image="second.png", status="doubtful", state="empty")
    tab.tab.set_input_files("#masks", folder / STATE / "first.png.labels.png")
    tab.tab.get_by_text("is done").wait_for()  # a mask of an image that is locked


def test_strokes_and_labels_are_copied_to_the_next_image(server, folder, page):
    write_image(folder / "third.png", scene(seed=2))
    tab = page().open(server(folder).url)
    draw_three(tab)
    tab.tab.click("#copy-strokes")
    tab.wait(image="second.png", strokes=3, stage="certified", saved="yes")
    tab.tab.click("#copy-labels")
    tab.wait(image="third.png", strokes=0, state="current")
    assert set(np.unique(tab.answer())) == {0, 1, 2}
    revision = int(tab.data("revision"))
    tab.press("4")
    tab.draw((0.1, 0.9), (0.3, 0.9))
    tab.wait(strokes=1, stage="certified", saved="yes", revision=revision + 1)
    assert tab.answer().reshape(96, 128)[86, 20] == 3
    assert tab.errors == []


def test_regions_become_objects_and_locked_labels_keep_their_pixels(server, folder, page):
    tab = page().open(server(folder).url)
    draw_three(tab)
    ball = tab.answer() == 2
    tab.press("3", "c")
    tab.tab.mouse.click(*tab.at(0.5, 0.5))  # the ball: another object of its class
    tab.wait(strokes=4, stage="certified", saved="yes", revision=5)
    np.testing.assert_array_equal(tab.raster() == 64, ball)
    assert tab.tab.locator(".chip").count() == 2
    tab.tab.click("[aria-label='Lock label 3']")
    tab.press("1", "b")
    tab.draw((0.2, 0.5), (0.8, 0.5))  # across the ball
    tab.wait(saved="yes", stage="certified", strokes=5)
    np.testing.assert_array_equal(tab.raster() == 64, ball)
    tab.press("2", "c")
    tab.tab.mouse.click(*tab.at(0.5, 0.9))
    tab.wait(strokes=6, stage="certified", saved="yes")
    tab.press("e")
    tab.tab.click("#export")
    with tab.tab.expect_download() as download:
        tab.tab.click("[data-dataset=coco]")
    found = json.loads(download.value.path().read_text())["annotations"]
    assert sorted(each["category_id"] for each in found) == [0, 1, 2]
    assert tab.errors == []


def test_the_headline_says_what_is_the_matter(server, folder, page):
    (folder / "broken.png").write_text("this is text")
    running = server(folder)
    tab = page().open(running.url + "#first.png")
    assert tab.tab.inner_text("#state") == "no strokes yet"
    tab.press("1")
    tab.draw(*SKY)
    tab.wait(strokes=1, state="one", saved="yes")
    tab.press("2")
    tab.draw(*GRASS)
    tab.wait(strokes=2, state="current", stage="certified")
    tab.tab.wait_for_selector("#unsure:not([hidden])")
    assert tab.tab.evaluate(CLEARED) == "working"  # at once: the answer is of other strokes
    tab.press("Control+z")
    tab.wait(strokes=2, state="current")
    assert tab.tab.inner_text("#unsure").endswith(("unsure region", "unsure regions"))
    tab.tab.select_option("#images", "broken.png")
    tab.wait(state="broken")
    assert not tab.tab.is_enabled("#export")
    assert tab.tab.evaluate("document.querySelector('.panel').inert")
    tab.tab.select_option("#images", "first.png")
    tab.wait(state="current")
    running.stop(signal.SIGKILL)
    tab.wait(state="lost", connected="no")
    assert tab.tab.inner_text("#state") == "not connected"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_and_targets_be_touched(server, folder, page, scheme):
    tab = page(390, 844, scheme).open(server(folder).url)
    draw_three(tab)
    tab.tab.click("#model summary")
    tab.tab.click("#solver summary")
    assert tab.tab.evaluate(f"{READABLE}.pale()") == []
    assert tab.tab.evaluate(f"{READABLE}.small()") == []
    tab.press("g")
    tab.tab.wait_for_selector("#gallery:not([hidden])")
    assert tab.tab.evaluate(f"{READABLE}.pale()") == []
    assert tab.tab.evaluate(f"{READABLE}.small()") == []
    tab.press("Escape")
    tab.tab.click("#export")
    assert tab.tab.evaluate(f"{READABLE}.pale()") == []
    assert tab.tab.evaluate(f"{READABLE}.small()") == []
    tab.press("Escape")
    assert tab.tab.evaluate("document.activeElement.id") in ("export", "canvas")
    assert tab.tab.get_attribute("#canvas", "aria-describedby") == "canvas-help"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_a_large_image_can_be_exported_quickly(server, tmp_path, page, width, scheme):
    """At the size on screen, by choice; its file says so."""
    write_image(tmp_path / "large.png", scene(1010, 1010))
    write_image(tmp_path / "small.png", scene())
    tab = page(width, 844, scheme).open(server(tmp_path).url)
    tab.tab.click("#export")
    tab.tab.check("#reduced")
    assert tab.tab.evaluate(f"{READABLE}.pale()") == []
    assert width > 1000 or tab.tab.evaluate(f"{READABLE}.small()") == []
    tab.screenshot(f"export-{width}-{scheme}")
    with tab.tab.expect_request("**/export/labels?*") as asked:
        tab.tab.click("[data-export=labels]")
    assert asked.value.url.endswith("&size=reduced")
    tab.tab.get_by_text("no strokes").first.wait_for()
    tab.press("Escape", "PageDown")
    tab.wait(image="small.png")
    tab.tab.click("#export")
    assert not tab.tab.is_visible("#reduced")


def test_bad_files_give_a_message(server, folder, page, tmp_path):
    (folder / "text.png").write_text("this is text")
    Image.new("1", (30_000, 30_000)).save(folder / "huge.png")
    tab = page()
    tab.tab.goto(server(folder).url + "#text.png")
    tab.tab.wait_for_selector(".message.error")
    assert "text.png: is not an image" in tab.tab.inner_text("#messages")
    tab.tab.select_option("#images", "huge.png")
    tab.tab.get_by_text("huge.png:").wait_for()
    tab.tab.set_input_files("#file", {"name": "x.png", "mimeType": "image/png", "buffer": b"no"})
    tab.tab.get_by_text("x.png:").wait_for()
    write_image(tmp_path / "good.png", scene(seed=3))
    tab.tab.set_input_files("#file", tmp_path / "good.png")
    tab.wait(image="good.png")
    assert tab.tab.inner_text("#messages") == ""


def test_a_folder_that_cannot_be_written_is_said_in_the_page(server, folder, page):
    (folder / STATE).write_text("in the way")  # as root, permissions would not do
    tab = page().open(server(folder).url)
    tab.press("1")
    tab.draw(*SKY)
    tab.tab.wait_for_selector(".message.error")
    assert "cannot be saved" in tab.tab.inner_text("#messages")
    tab.tab.reload()
    tab.wait(strokes=1)
    (folder / STATE).unlink()
    tab.press("2")
    tab.draw(*GRASS)
    tab.wait(strokes=2, saved="yes")
    assert len(json.loads((folder / STATE / "first.png.json").read_text())["strokes"]) == 2


def test_without_an_image_a_photograph_can_be_dropped(server, tmp_path, page, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tab = page()
    tab.tab.goto(server().url)
    tab.tab.wait_for_selector("#empty:not([hidden])")
    tab.screenshot("empty")
    write_image(tmp_path / "photo.png", scene())
    tab.tab.set_input_files("#file", tmp_path / "photo.png")
    tab.wait(image="photo.png")
    draw_three(tab)


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screens(server, tmp_path, page, width, scheme):
    data = pytest.importorskip("skimage.data")
    write_image(tmp_path / "cat.png", data.chelsea())
    tab = page(width, 900 if width > 1000 else 800, scheme).open(server(tmp_path).url)
    tab.press("1")
    tab.draw((0.35, 0.3), (0.6, 0.4), (0.55, 0.6), (0.3, 0.8))
    tab.draw((0.3, 0.1), (0.55, 0.15))
    tab.press("2")
    tab.draw((0.97, 0.15), (0.93, 0.45), (0.9, 0.7))
    tab.draw((0.02, 0.1), (0.03, 0.3))
    tab.wait(stage="certified", strokes=4, revision=4)
    wide = tab.tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    tab.tab.mouse.move(5, 5)
    tab.screenshot(f"{width}-{scheme}")
    assert tab.errors == []


def test_a_volume_is_drawn_on_slice_by_slice(server, tmp_path, page):
    z, y, x = np.mgrid[:6, :40, :48]
    ball = ((z - 3) / 2.5) ** 2 + ((y - 20) / 12) ** 2 + ((x - 24) / 14) ** 2 < 1
    np.save(tmp_path / "ball.npy", np.where(ball, 200, 40).astype(np.uint8))
    tab = page().open(server(tmp_path).url)
    tab.press("1")
    tab.draw((0.1, 0.1), (0.9, 0.1))
    for _ in range(3):
        at = int(tab.data("slice"))
        tab.press(".")
        tab.wait(slice=at + 1)
    assert set(np.unique(tab.raster())) == {255}  # the stroke is in the first slice
    tab.press("2")
    tab.draw((0.45, 0.5), (0.55, 0.5))
    tab.wait(strokes=2, stage="certified", revision=2)
    answer = tab.answer().reshape(6, 40, 48)
    assert (answer == ball).mean() > 0.98
    tab.screenshot("volume")
    tab.press("Control+z", "Control+z")
    tab.wait(strokes=0, slice=0)  # where the undone stroke was
    assert tab.errors == []
