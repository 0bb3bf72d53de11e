"""The canvas in a notebook: its Python side without a kernel, its other side in a real browser."""

import base64
import subprocess
import sys
import time

import numpy as np
import pytest

from scribbling import scene

anywidget = pytest.importorskip("anywidget")

from densecrf import widget as module  # noqa: E402
from densecrf.widget import Scribble, bundle  # noqa: E402

STROKES = [
    {"tool": "brush", "label": 0, "size": 5, "points": [[10, 10], [110, 12]]},
    {"tool": "brush", "label": 2, "size": 5, "points": [[10, 85], [110, 84]]},
]


def wait(condition, seconds=600):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def canvas():
    made = Scribble(scene(), ["sky", "ball", "grass"])
    yield made
    made.close()


def test_a_program_may_end_while_a_canvas_is_being_solved():
    program = (
        "import numpy as np; from densecrf.widget import Scribble\n"
        "image = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)\n"
        f"canvas = Scribble(image, 3, strokes={STROKES!r})"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_strokes_are_answered(canvas):
    assert canvas.result is None
    assert canvas.labels is None
    canvas.strokes = STROKES
    wait(lambda: canvas.result is not None)
    assert canvas.result.gap <= 1e-3
    assert canvas.labels.shape == (96, 128)
    assert (canvas.labels[5, 60], canvas.labels[90, 60]) == (0, 2)
    first = canvas.result
    canvas.strokes = [
        *STROKES,
        {"tool": "brush", "label": 1, "size": 5, "points": [[60, 48], [70, 50]]},
    ]
    wait(lambda: canvas.result is not first and canvas.labels[48, 64] == 1)


def test_a_new_view_gets_the_last_answer(canvas, monkeypatch):
    canvas.strokes = STROKES
    wait(lambda: canvas.result is not None)
    sent = []
    monkeypatch.setattr(canvas, "send", lambda *message: sent.append(message))
    canvas._heard(canvas, {"type": "ready"}, [])
    assert sent[0][0] == {"type": "frame"}
    canvas._heard(canvas, "nonsense", [])


def test_images_of_any_range_and_wrong_ones():
    for image in (scene() / 255, scene()[..., 0]):
        canvas = Scribble(image, 2, model="deeplab", strokes=STROKES[:1])
        assert canvas._image.startswith(b"\x89PNG")
        canvas.close()
    for arguments in ((np.zeros(5),), (scene(), 1), (scene(), 65)):
        with pytest.raises(ValueError, match=r"image|names"):
            Scribble(*arguments)


def test_wrong_strokes_are_refused(canvas):
    for wrong in ([{"tool": "x"}], [{**STROKES[0], "label": 7}]):
        with pytest.raises(ValueError, match=r"tool|label"):
            canvas.strokes = wrong


def test_the_bundle_is_one_module():
    text = bundle()
    assert "import {" not in text
    assert text.count("export ") == 1
    for name in module.MODULES:
        assert (module.STATIC / name).is_file()


FAKE = """
const traits = { _shape: [96, 128], _labels: LABELS, _image: BYTES, strokes: [] };
const heard = {};
window.fake = { traits, heard, sent: [] };
const model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; },
  save_changes: () => {},
  send: (message) => window.fake.sent.push(message),
  on: (name, call) => { heard[name] = call; },
  off: () => {},
};
const el = document.createElement("div");
document.body.append(el);
widget.default.render({ model, el }).then(() => { document.body.dataset.ready = "yes"; });
"""


def test_strokes_are_drawn_in_a_browser(canvas, browser, tmp_path):
    canvas.strokes = STROKES
    wait(lambda: canvas._last is not None)
    image = base64.b64encode(canvas._image).decode()
    code = base64.b64encode(bundle().encode()).decode()
    fake = FAKE.replace("LABELS", str(canvas._labels).replace("False", "false"))
    fake = fake.replace("BYTES", f"Uint8Array.from(atob('{image}'), (c) => c.charCodeAt(0))")
    page = tmp_path / "page.html"
    page.write_text(
        f"<style>{canvas._css}</style><body><script type=module>"
        f"const widget = await import('data:text/javascript;base64,{code}');{fake}</script>"
    )
    tab = browser.new_page(viewport={"width": 700, "height": 600})
    tab.set_default_timeout(300_000)
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-ready]")
    assert tab.evaluate("window.fake.sent") == [{"type": "ready"}]
    bounds = tab.locator("canvas").bounding_box()
    tab.get_by_text("ball").click()
    tab.mouse.move(bounds["x"] + 250, bounds["y"] + 200)
    tab.mouse.down()
    tab.mouse.move(bounds["x"] + 350, bounds["y"] + 220, steps=3)
    tab.mouse.up()
    (stroke,) = tab.evaluate("window.fake.traits.strokes")
    assert (stroke["tool"], stroke["label"]) == ("brush", 1)
    frame = base64.b64encode(canvas._last).decode()
    send = "(text) => window.fake.heard['msg:custom']({ type: 'frame' }, [new DataView("
    send += "Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer)])"
    tab.evaluate(send, frame)
    tab.get_by_text("proven").or_(tab.get_by_text("preview")).wait_for()
    tab.get_by_text("undo").click()
    assert tab.evaluate("window.fake.traits.strokes") == []
    assert errors == []
    tab.close()
