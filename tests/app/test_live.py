"""The answers that follow a stroke, in the order in which they are shown."""

from __future__ import annotations

import json
import queue
import zlib
from pathlib import Path

import numpy as np
import pytest

from densecrf.app.document import Document, default_labels
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.live import Live
from densecrf.app.pictures import Picture
from densecrf.app.strokes import Stroke
from densecrf.solvers.islands import regions
from scribbling import scene

pytest.importorskip("starlette")

UP, DOWN, DISC = (
    Stroke("brush", 0, 5, ((10.0, 10.0), (110.0, 10.0))),
    Stroke("brush", 1, 5, ((10.0, 85.0), (110.0, 85.0))),
    Stroke("brush", 2, 5, ((55.0, 40.0), (75.0, 55.0))),
)


@pytest.fixture
def live():
    """Return a solver, and its messages until a certified answer."""
    messages = queue.Queue()
    pixels = scene()
    pixels[24:36, 94:106] = pixels[80:92, 94:106]  # ground in the sky
    solver = Live(Energies(Picture(Path("scene.png"), pixels, 1, (96, 128))), messages.put)

    def certified(strokes, **settings):
        document = Document("x", (96, 128), default_labels(4))
        document.strokes, document.revision = list(strokes), len(strokes)
        document.settings = document.settings.changed(settings)
        solver.ask(Snapshot.of(document))
        heads = []
        while not heads or heads[-1].get("stage") != "certified":
            message = messages.get(timeout=60)
            if isinstance(message, bytes):
                size = int.from_bytes(message[:4], "little")
                heads.append(json.loads(message[4 : 4 + size]))
                heads[-1]["bytes"] = zlib.decompress(message[4 + size :])
            else:
                heads.append(message)
        return [head for head in heads if head["revision"] == len(strokes)]

    yield certified
    solver.close()


def test_nothing_worse_follows_the_preview_of_a_new_label(live):
    live([UP, DOWN])
    heads = live([UP, DOWN, DISC])
    energies = [head["energy"] for head in heads if head["type"] in ("answer", "progress")]
    assert heads[0]["stage"] == "preview"
    assert len(energies) > 1
    assert (np.diff(energies) <= 0).all()
    assert heads[-1]["bound"] <= heads[-1]["energy"]


def test_islands_go_at_a_price_that_the_answer_names(live):
    island = Stroke("brush", 1, 5, ((100.0, 30.0), (100.0, 30.0)))
    rough = live([UP, DOWN])[-1]
    smooth = live([UP, DOWN], min_area=400)[-1]
    assert smallest(rough) < 400 <= smallest(smooth)
    assert rough["islands"] == 0 < smooth["islands"]
    assert smooth["bound"] <= smooth["energy"] - smooth["islands"]
    assert smallest(live([UP, DOWN, island], min_area=400)[-1]) < 400  # it is under a stroke


def smallest(head):
    """Return the size of an answer's smallest region."""
    labels = np.frombuffer(head["bytes"], np.uint8)[: 96 * 128].reshape(96, 128)
    return min(regions(labels.astype(np.int64))[1])
