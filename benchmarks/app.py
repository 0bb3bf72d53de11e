"""The scribble app: how soon after a stroke there is a preview, and a certificate."""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness import Section, milliseconds
from densecrf.app.document import Document
from densecrf.app.energy import Energies, Snapshot
from densecrf.app.full_size import side_of_blocks, solve
from densecrf.app.live import Live
from densecrf.app.pictures import Picture, read_picture

TEXT = """
A scripted session of {count} strokes with four labels on a photograph of 640 × 480 pixels: time
from the end of a stroke to the preview (mean field) and to the certified answer (gap 0.1 %, warm
start from the answer before), in milliseconds; all threads, without the browser: elapsed time, and
the CPU time of all threads together, which other programs on the machine disturb less. Then
{seconds:.0f} s of random drawing, {drawn} strokes, most of which supersede a solve under way:
resident memory grew by {grown:.1f} MiB after the first fifth. The export is of the same photograph
with 12 million pixels: read, and solved with all of them, to 1 % or four iterations.
"""
LABELS = 4

Clocks = tuple[float, float]  # elapsed and CPU time


def clocks() -> Clocks:
    """Return the time now."""
    return time.perf_counter(), time.process_time()


def photograph() -> Any:
    """Return an image of 640 × 480 pixels."""
    from PIL import Image
    from skimage import data

    return np.asarray(Image.fromarray(data.astronaut()).resize((640, 480)))


def strokes(count: int) -> list[dict[str, Any]]:
    """Return a session: first one stroke a label, then corrections here and there."""
    first = [
        (0, [[215, 60], [285, 120]]),  # face
        (1, [[30, 40], [120, 60]]),  # background
        (2, [[150, 330], [250, 420]]),  # suit
        (3, [[560, 40], [600, 300]]),  # shuttle
    ]
    rng = random.Random(0)
    areas = [(210, 60, 300, 160), (10, 10, 150, 150), (90, 280, 330, 470), (480, 20, 620, 380)]
    out = list(first)
    while len(out) < count:
        label = rng.randrange(LABELS)
        left, top, right, bottom = areas[label]
        x, y = rng.uniform(left, right), rng.uniform(top, bottom)
        out.append((label, [[x, y], [x + rng.uniform(-25, 25), y + rng.uniform(-25, 25)]]))
    return [{"tool": "brush", "label": label, "size": 7, "points": p} for label, p in out]


class Session:
    """A document with its solver, and the time at which each kind of answer came."""

    def __init__(self) -> None:
        image = photograph()
        picture = Picture(Path("photo"), image, 1, image.shape[:2])
        self.document = Document("photo", picture.shape)
        self.came: dict[tuple[int, str], Clocks] = {}
        self.changed = threading.Condition()
        self.live = Live(Energies(picture), self._hear)

    def _hear(self, message: Any) -> None:
        if isinstance(message, bytes):
            length = int.from_bytes(message[:4], "little")
            message = json.loads(message[4 : 4 + length])
        kind = message.get("stage", message["type"])
        with self.changed:
            self.came.setdefault((message["revision"], kind), clocks())
            self.changed.notify_all()

    def draw(self, stroke: dict[str, Any]) -> Clocks:
        """Draw a stroke and return when it ended."""
        now = clocks()
        edit = {"id": f"s{self.document.revision}", "kind": "stroke", "stroke": stroke}
        self.document.apply(edit)
        self.live.ask(Snapshot.of(self.document))
        return now

    def wait(self, kind: str) -> Clocks:
        """Wait for an answer to the last stroke and return when it came."""
        key = (self.document.revision, kind)
        with self.changed:
            self.changed.wait_for(lambda: key in self.came, timeout=120)
        return self.came[key]


def run(scale: str) -> Section:
    """Measure a session, and then memory under random drawing."""
    count = 10 if scale == "small" else 30
    seconds = {"small": 10.0, "medium": 60.0, "full": 1200.0}[scale]
    session = Session()
    taken: dict[str, list[Clocks]] = {"preview": [], "certified": []}
    for stroke in strokes(count):
        ended = session.draw(stroke)
        if session.document.revision < 2:
            continue  # one label has no answer
        for stage, times in taken.items():
            came = session.wait(stage)
            times.append((came[0] - ended[0], came[1] - ended[1]))
    drawn, grown = random_drawing(session, seconds)
    session.live.close()
    if scale != "small":
        taken["export"] = [export(session.document)]
    rows = [(stage, *map(milliseconds, _summary(times))) for stage, times in taken.items()]
    text = TEXT.format(count=count, seconds=seconds, drawn=drawn, grown=grown)
    return Section("The app", text, ("", "median", "slowest", "CPU time, median"), rows)


def export(document: Document) -> Clocks:
    """Return how long the labels of the photograph take, enlarged to 4000 × 3000 pixels."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        path = Path(folder) / "large.jpg"
        Image.fromarray(photograph()).resize((4000, 3000)).save(path, quality=92)
        began = clocks()
        picture = read_picture(path, path.name).finer(12_000_000)
        factor = picture.shape[0] / document.shape[0]
        snapshot = Snapshot.enlarged(document, factor, picture.shape)
        solve(Energies(picture).reproducible(snapshot), side_of_blocks(picture.shape))
        ended = clocks()
    return ended[0] - began[0], ended[1] - began[1]


def _summary(taken: list[Clocks]) -> tuple[float, float, float]:
    elapsed, cpu = zip(*taken, strict=True)
    return statistics.median(elapsed), max(elapsed), statistics.median(cpu)


def random_drawing(session: Session, seconds: float) -> tuple[int, float]:
    """Draw at random for a while; return the number of strokes and the growth in MiB."""
    rng = random.Random(1)
    started, drawn, early = time.perf_counter(), 0, None
    while (now := time.perf_counter() - started) < seconds:
        x, y = rng.uniform(0, 640), rng.uniform(0, 480)
        points = [[x, y], [x + rng.uniform(-40, 40), y + rng.uniform(-40, 40)]]
        session.draw({"tool": "brush", "label": rng.randrange(LABELS), "size": 5, "points": points})
        drawn += 1
        session.came.clear()
        if drawn % 50 == 0:  # what a user draws stays; a session of thousands is not meant
            session.document.replace_strokes(session.document.strokes[:LABELS])
        time.sleep(rng.choice((0.01, 0.05, 0.5)))
        if early is None and now > seconds / 5:
            early = _resident()
    return drawn, _resident() - (early or 0.0)


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
