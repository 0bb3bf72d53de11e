"""Take the pictures of the app for docs/images/app.jpg: `python tools/docs_app.py`.

Needs the extra `test`, scikit-image's photographs and Chromium.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from skimage import data

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from scribbling import CHROMIUM, FLAGS, Page, Running  # noqa: E402

HEIGHT = 760
STROKES = {
    "1": [[(0.35, 0.3), (0.6, 0.4), (0.55, 0.6), (0.3, 0.8)], [(0.3, 0.1), (0.55, 0.15)]],
    "2": [[(0.97, 0.04), (0.93, 0.45), (0.9, 0.7)], [(0.02, 0.1), (0.03, 0.3)]],
}


def main() -> None:
    """Draw on a photograph, and put three pictures side by side."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        Image.fromarray(data.chelsea()).save(folder / "cat.png")
        running = Running(folder)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(
            viewport={"width": 1180, "height": HEIGHT}, device_scale_factor=1.5
        )
        page = Page(context.new_page()).open(running.url)
        page.tab.fill("#opacity", "0")
        for key, strokes in STROKES.items():
            page.press(key)
            for stroke in strokes:
                page.draw(*stroke)
        page.tab.mouse.move(5, 5)
        page.wait(stage="certified", revision=sum(map(len, STROKES.values())))
        page.tab.evaluate("document.activeElement.blur()")
        page.tab.locator("#stage").screenshot(path=folder / "strokes.png")
        page.tab.fill("#opacity", "0.55")
        page.tab.evaluate("document.activeElement.blur()")
        page.tab.wait_for_timeout(400)
        page.tab.screenshot(path=folder / "app.png")
        page.tab.click("#export")
        with page.tab.expect_download() as download:
            page.tab.click("[data-export=labels]")
        download.value.save_as(folder / "labels.png")
        browser.close()
        running.stop()
        _join(folder, ROOT / "docs/images/app.jpg")


def _join(folder: Path, path: Path) -> None:
    names = ("strokes", "app", "labels")
    pictures = [Image.open(folder / f"{each}.png").convert("RGB") for each in names]
    pictures[0] = _cropped(pictures[0])
    height = 480
    sized = [p.resize((round(p.width * height / p.height), height)) for p in pictures]
    width = sum(p.width for p in sized) + 16 * (len(sized) - 1)
    strip = Image.new("RGB", (width, height), "white")
    x = 0
    for picture in sized:
        strip.paste(picture, (x, 0))
        x += picture.width + 16
    strip.save(path, quality=88)


def _cropped(picture: Image.Image) -> Image.Image:
    """Return a picture without its plain margin."""
    pixels = np.asarray(picture).astype(int)
    other = np.abs(pixels - pixels[0, 0]).max(-1) > 8
    rows, columns = np.flatnonzero(other.any(1)), np.flatnonzero(other.any(0))
    return picture.crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))


if __name__ == "__main__":
    main()
