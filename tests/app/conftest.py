"""A server of the app on a folder of small pictures, and a real browser."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from app_scene import scene

pytest.importorskip("starlette")

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


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two pictures."""
    from densecrf.io import write_image

    images = tmp_path / "images"
    write_image(images / "first.png", scene())
    write_image(images / "second.png", scene(seed=1))
    return images


class Running:
    """A server in a process of its own."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "densecrf", "app", *map(str, arguments), "--no-browser"]
        self.process = subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.url = self.process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", self.url), self.url

    def stop(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def server():
    """Return a function that starts servers, which end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            running = Running(*arguments)
            stack.callback(running.stop)
            return running

        yield start


@pytest.fixture(scope="session")
def browser():
    """Return a headless Chromium of the system."""
    playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: the page is not tested in a browser")
    with playwright.sync_playwright() as driver, tempfile.TemporaryDirectory():
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield running
        running.close()


class Page:
    """One tab, with the few actions that tests are written in."""

    def __init__(self, tab):
        self.tab = tab
        self.errors = []
        tab.on("pageerror", lambda error: self.errors.append(str(error)))
        tab.on("console", lambda said: said.type == "error" and self.errors.append(said.text))

    def open(self, url):
        self.tab.goto(url)
        self.tab.wait_for_selector("body[data-image]", timeout=30000)
        return self

    def at(self, x, y):
        """Return the place on the page of a point in the image, both from 0 to 1."""
        bounds = self.tab.locator("#canvas").bounding_box()
        size = "(({ x, y, scale, width, height }) => [x, y, scale * width, scale * height])"
        image = self.tab.evaluate(f"{size}(window.densecrf.view)")
        return bounds["x"] + image[0] + x * image[2], bounds["y"] + image[1] + y * image[3]

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
        self.tab.wait_for_selector(selector, timeout=60000)

    def raster(self):
        return np.array(self.tab.evaluate("Array.from(window.densecrf.layer().raster)"), np.uint8)

    def answer(self):
        labels = "Array.from(window.densecrf.view.answers.certified?.labels ?? [])"
        return np.array(self.tab.evaluate(labels), np.uint8)

    def screenshot(self, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=SCREENSHOTS / f"{name}.png")


@pytest.fixture
def page(browser):
    """Return a function that makes tabs."""
    contexts = []

    def make(width=1400, height=900, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        return Page(context.new_page())

    yield make
    for context in contexts:
        context.close()
