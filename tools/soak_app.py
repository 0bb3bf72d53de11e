"""Draw at random in the app for a while, in a real browser, and watch its memory.

``python tools/soak_app.py --minutes 20`` starts a server and a headless browser, draws strokes with
the mouse faster than they can be solved, undoes, redoes, moves between two images and changes
sliders, and prints once a minute the server's resident memory and the page's JavaScript heap after
a collection. The last line compares the last third with the second.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from scribbling import CHROMIUM, FLAGS, Page, Running

MOST_STROKES = 60  # then all are cleared: what is drawn is kept, and would grow


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def heap(session: object) -> float:
    """Return the page's JavaScript heap in MiB, without garbage."""
    session.send("HeapProfiler.collectGarbage")  # type: ignore[attr-defined]
    return session.send("Runtime.getHeapUsage")["usedSize"] / 2**20  # type: ignore[attr-defined]


def act(page: Page, rng: random.Random) -> None:
    """Do what a user might do next."""
    if int(page.data("strokes") or 0) > MOST_STROKES:
        page.tab.click("#clear")
    chosen = rng.random()
    if chosen < 0.8:
        page.press(rng.choice("1234"), rng.choice(("b", "b", "b", "l", "e")))
        x, y = rng.random(), rng.random()
        page.draw((x, y), (min(1, x + rng.uniform(0, 0.1)), min(1, y + rng.uniform(0, 0.1))))
    elif chosen < 0.9:
        page.press(rng.choice(("Control+z", "Control+z", "Control+Shift+z")))
    elif chosen < 0.97:
        page.tab.fill("#strength", str(rng.choice((-1, 0, 1))))
    else:
        page.press(rng.choice(("PageDown", "PageUp")))
        page.tab.wait_for_timeout(500)


def soak(minutes: float, seed: int) -> None:
    """Draw, and print what memory does."""
    from playwright.sync_api import sync_playwright
    from skimage import data

    from densecrf.io import write_image

    rng, rows = random.Random(seed), []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_image(Path(folder) / "astronaut.png", data.astronaut())
        write_image(Path(folder) / "cat.png", data.chelsea())
        running = Running(folder)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = Page(browser.new_page())
            page.open(running.url)
            session = page.tab.context.new_cdp_session(page.tab)
            started = time.monotonic()
            actions, next_row = 0, 60.0
            print("minutes  actions  server MiB  JavaScript heap MiB", flush=True)
            while (now := time.monotonic() - started) < 60 * minutes:
                act(page, rng)
                actions += 1
                page.tab.wait_for_timeout(rng.choice((10, 50, 500)))
                if now >= next_row:
                    next_row += 60
                    rows.append((resident(running.process.pid), heap(session)))
                    row = f"{now / 60:7.1f}  {actions:7d}  {rows[-1][0]:10.1f}  {rows[-1][1]:19.1f}"
                    print(row, flush=True)
            print("errors in the page:", page.errors or "none")
        finally:
            browser.close()
            running.stop()
    third = len(rows) // 3
    for name, column in (("server", 0), ("heap", 1)):
        middle = statistics.median(row[column] for row in rows[third : 2 * third])
        last = statistics.median(row[column] for row in rows[2 * third :])
        print(f"{name}: {middle:.1f} MiB in the second third, {last:.1f} MiB in the last")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    soak(arguments.minutes, arguments.seed)
