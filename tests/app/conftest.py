"""A server of the app on a folder of small pictures, and a real browser."""

from __future__ import annotations

import contextlib

import pytest

from scribbling import Page, Running, scene

pytest.importorskip("starlette")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two pictures."""
    from densecrf.io import write_image

    images = tmp_path / "images"
    write_image(images / "first.png", scene())
    write_image(images / "second.png", scene(seed=1))
    return images


@pytest.fixture
def server():
    """Return a function that starts servers, which end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            running = Running(*arguments)
            stack.callback(running.stop)
            return running

        yield start


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


@pytest.fixture
def client(folder):
    """Return a client of the server on the folder, as a tab of the browser would be."""
    from starlette.testclient import TestClient

    from browser_tab import ORIGIN, PORT, TOKEN
    from densecrf.app.server import make_app
    from densecrf.app.store import ImageFolder

    with TestClient(make_app(ImageFolder(folder), TOKEN, PORT), base_url=ORIGIN) as client:
        yield client
