"""What the tests of the app share: a picture, a server in a process of its own, a browser's tab."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
# Where the screenshots go; they are looked at, not compared.
SCREENSHOTS = Path(os.environ.get("DENSECRF_SCREENSHOTS", "out/screenshots"))
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Where the image lies on the page, and how large it is there.
PLACE = """(({ x, y, scale, aspect, width, height }) => {
  const { left, top } = document.getElementById("canvas").getBoundingClientRect();
  return [left + x, top + y, scale * width, scale * aspect * height];
})(window.densecrf.view)"""


def scene(height=96, width=128, seed=0):
    """Return a picture of three regions that differ in colour."""
    rng = np.random.default_rng(seed)
    image = np.empty((height, width, 3))
    image[:] = (70, 120, 190)
    image[height // 2 :] = (90, 150, 70)
    y, x = np.mgrid[:height, :width]
    image[(y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 4) ** 2] = (200, 80, 60)
    return np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)


class Running:
    """A server in a process of its own."""

    def __init__(self, *arguments, port=0):
        command = [sys.executable, "-m", "densecrf", "app", *map(str, arguments), "--no-browser"]
        self.process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", self.url), self.url

    def stop(self, number=signal.SIGINT):
        """End the server; the signal is sent again where it came before anyone listened to it."""
        for _ in range(300):
            if self.process.poll() is None:
                self.process.send_signal(number)
            try:
                _, self.said = self.process.communicate(timeout=2)
                return
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        self.process.communicate()


class Page:
    """One tab, with the few actions that tests are written in."""

    def __init__(self, tab):
        self.tab = tab
        tab.set_default_timeout(300_000)
        self.errors = []
        tab.on("pageerror", lambda error: self.errors.append(str(error)))
        tab.on("console", lambda said: said.type == "error" and self.errors.append(said.text))

    def open(self, url):
        self.tab.goto(url)
        self.tab.wait_for_selector("body[data-image]")
        return self

    def at(self, x, y):
        """Return the place on the page of a point in the image, both from 0 to 1."""
        left, top, wide, tall = self.tab.evaluate(PLACE)
        return left + x * wide, top + y * tall

    def draw(self, *points):
        """Draw a stroke with the mouse through points of the image, from 0 to 1."""
        mouse = self.tab.mouse
        mouse.move(*self.at(*points[0]))
        mouse.down()
        for point in points[1:]:
            mouse.move(*self.at(*point), steps=4)
        mouse.up()

    def press(self, *keys):
        for key in keys:
            self.tab.keyboard.press(key)

    def data(self, name):
        return self.tab.evaluate(f"document.body.dataset.{name}")

    def wait(self, **values):
        """Wait until the page says so of itself."""
        selector = "body" + "".join(f'[data-{name}="{value}"]' for name, value in values.items())
        self.tab.wait_for_selector(selector)

    def until(self, condition):
        """Wait until something is true."""
        for _ in range(600):
            if condition():
                return
            self.tab.wait_for_timeout(100)
        raise AssertionError("it did not become true")

    def raster(self):
        return self._bytes("window.densecrf.layer().raster")

    def answer(self):
        return self._bytes("window.densecrf.view.answers.certified?.labels ?? []")

    def _bytes(self, array):
        """Return numbers up to 255; as one string they come in a tenth of the time."""
        said = self.tab.evaluate(
            f"Array.from({array}, (each) => String.fromCharCode(each)).join('')"
        )
        return np.frombuffer(said.encode("latin-1"), np.uint8)

    def screenshot(self, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=SCREENSHOTS / f"{name}.png")
