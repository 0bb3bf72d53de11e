"""Use the app at random for a while, in a real browser: memory stays flat, no stroke is lost.

``python tools/soak_app.py --minutes 20`` starts a server and a headless browser, draws strokes with
the mouse faster than they can be solved, undoes, redoes, drags boxes around objects, moves between
two images, changes sliders and status, and looks at the folder. Once a minute it prints the
server's resident memory and the page's JavaScript heap after a collection. In the last third the
server is killed again and again, at random moments, and started anew: the page must then have every
stroke that it had.
"""

from __future__ import annotations

import argparse
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from scribbling import CHROMIUM, FLAGS, Page, Running

MOST_STROKES = 60  # then all are undone: the history has no limit, and would grow
BETWEEN_KILLS = (5.0, 40.0)  # seconds
LONGEST = 60.0  # seconds until the strokes must be there again
GROWTH = 0.1  # of memory, between the last two thirds of the time without kills
STROKES = "window.densecrf.layer()?.strokes.map((s) => JSON.stringify([s.tool, s.label, s.points]))"


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def heap(session: Any) -> float:
    """Return the page's JavaScript heap in MiB, without garbage."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"] / 2**20)


def act(page: Page, rng: random.Random) -> None:
    """Do what a user might do next."""
    if int(page.data("strokes") or 0) > MOST_STROKES:
        page.press(*["Control+z"] * MOST_STROKES)
    chosen = rng.random()
    if chosen < 0.7:
        page.press(rng.choice("1234"), rng.choice(("b", "b", "b", "l", "e", "r", "t")))
        x, y = rng.random(), rng.random()
        page.draw((x, y), (min(1, x + rng.uniform(0, 0.1)), min(1, y + rng.uniform(0, 0.1))))
    elif chosen < 0.78:
        page.press(rng.choice("1234"), rng.choice("pw"))
        for _ in range(4):
            page.tab.mouse.click(*page.at(rng.uniform(0.1, 0.3), rng.uniform(0.1, 0.3)))
        page.press("Enter")
    elif chosen < 0.87:
        page.press(rng.choice(("Control+z", "Control+z", "Control+Shift+z")))
    elif chosen < 0.91:
        page.tab.fill("#strength", str(rng.choice((-1, 0, 1))))
    elif chosen < 0.94:
        page.press("d", "d", "u", "0")
    elif chosen < 0.96:
        page.press("g")
        page.tab.wait_for_selector("#gallery:not([hidden])")
        page.press("Escape")
    else:
        page.press(rng.choice(("PageDown", "PageUp")))
        page.tab.wait_for_selector("body[data-image]", timeout=60_000)


class Soak:
    """A server on a folder, and a tab that shows it."""

    def __init__(self, folder: str, page: Page, seed: int, longest: float = LONGEST) -> None:
        self.folder, self.page, self.rng = folder, page, random.Random(seed)
        self.longest = longest
        with socket.socket() as free:  # a browser keeps the data of a page by its port
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.found: list[str] = []
        self.actions = self.kills = 0
        self.start("")

    def start(self, image: str) -> None:
        """Start a server and show an image."""
        self.running = Running(self.folder, port=self.port)
        self.page.open(f"{self.running.url}#{image}")
        self.page.tab.evaluate("document.getElementById('model').open = true")

    def act(self) -> None:
        """Do something."""
        act(self.page, self.rng)
        self.actions += 1
        self.page.tab.wait_for_timeout(self.rng.choice((10, 50, 500)))

    def kill(self) -> None:
        """Kill the server and compare the strokes of the next one with those of the page."""
        self.page.tab.wait_for_selector("body:not([data-finding])")  # it may become a stroke
        image, before = self.page.data("image"), self.page.tab.evaluate(STROKES)
        self.running.stop(signal.SIGKILL)
        self.page.tab.goto("about:blank")
        self.start(image)
        self.kills += 1
        deadline = time.monotonic() + self.longest
        while (after := self.page.tab.evaluate(STROKES)) != before:
            if time.monotonic() > deadline:
                self.found.append(f"kill {self.kills}: {len(before)} strokes, {len(after)} after")
                return
            self.page.tab.wait_for_timeout(100)


def soak(minutes: float, seed: int) -> list[str]:
    """Use the app, print what memory does, and return what is wrong."""
    from playwright.sync_api import sync_playwright
    from skimage import data

    from densecrf.io import write_image

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_image(Path(folder) / "astronaut.png", data.astronaut())
        write_image(Path(folder) / "cat.png", data.chelsea())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = browser.new_page()
        it = Soak(folder, Page(tab), seed)
        try:
            session = tab.context.new_cdp_session(tab)
            rows = _memory(it, session, 60 * minutes * 2 / 3)
            end = time.monotonic() + 60 * minutes / 3
            while time.monotonic() < end:
                until = time.monotonic() + it.rng.uniform(*BETWEEN_KILLS)
                while time.monotonic() < until:
                    it.act()
                it.kill()
            print(f"{it.actions} actions, killed {it.kills} times", flush=True)
        finally:
            browser.close()
            it.running.stop()
    lost = "Failed to load resource", "WebSocket connection"  # while the server is away
    it.found += [error for error in it.page.errors if not error.startswith(lost)]
    return it.found + growth(rows)


def _memory(it: Soak, session: Any, seconds: float) -> list[tuple[float, float]]:
    started, next_row = time.monotonic(), 60.0
    rows = []
    print("minutes  actions  server MiB  JavaScript heap MiB", flush=True)
    while (now := time.monotonic() - started) < seconds:
        it.act()
        if now >= next_row:
            next_row += 60
            rows.append((resident(it.running.process.pid), heap(session)))
            row = f"{now / 60:7.1f}  {it.actions:7d}  {rows[-1][0]:10.1f}  {rows[-1][1]:19.1f}"
            print(row, flush=True)
    return rows


def growth(rows: list[tuple[float, float]]) -> list[str]:
    """Return what grew between the last two thirds of the time, of server and heap in MiB.

    What is compared is the least of each third: solves under way take memory and give it back.
    """
    third, grown = len(rows) // 3, []
    for name, column in (("server", 0), ("heap", 1)) if third else ():
        middle = min(row[column] for row in rows[third : 2 * third])
        last = min(row[column] for row in rows[2 * third :])
        print(f"{name}: at least {middle:.1f} MiB in the second third, {last:.1f} in the last")
        if last > (1 + GROWTH) * middle:
            grown.append(f"{name}: memory grew from {middle:.1f} to {last:.1f} MiB")
    return grown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = soak(arguments.minutes, arguments.seed)
    print("\n".join(found) or "nothing found")
    sys.exit(1 if found else 0)
