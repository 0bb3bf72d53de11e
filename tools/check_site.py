"""Check the built documentation: every link leads somewhere, and nothing is loaded from elsewhere.

    python tools/check_site.py site [--phone]

Internal links and their anchors must exist. Pages must work without the network, so scripts,
styles and pictures must be files of the site. Links to other sites are listed and checked for their
form only: whether they answer is not for a build to depend on. With ``--phone``, a Chromium of the
system opens every page, 390 pixels wide: none may scroll sideways.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

LOADED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}
NOT_LOADED = {"canonical", "prev", "next"}
NO_PAGE = {"mailto", "data", "javascript"}


class Page(HTMLParser):
    """The anchors of one page, and what it links to and loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif given.get(LOADED.get(tag, "")) and given.get("rel") not in NOT_LOADED:
            self.loads.append(given[LOADED[tag]])


def target(site: Path, page: Path, link: str) -> Path:
    """Return the file that an internal link of a page leads to."""
    path = unquote(urlsplit(link).path)
    found = page if not path else (site / path[1:] if path[0] == "/" else page.parent / path)
    return (found / "index.html" if found.is_dir() else found).resolve()


def problems(site: Path, external: set[str]) -> Iterator[str]:
    """Yield what is wrong, and collect the links to other sites."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme in NO_PAGE:
                continue
            if parts.scheme or parts.netloc:
                external.add(link)
                if parts.scheme != "https" or "." not in parts.netloc:
                    yield f"{where}: {link} is not an https address"
                if link in page.loads:
                    yield f"{where}: loads {link} from elsewhere"
                continue
            found = target(site, path, link)
            if not found.is_file():
                yield f"{where}: {link} leads nowhere"
            elif found in pages and unquote(parts.fragment) not in {"", *pages[found].anchors}:
                yield f"{where}: {link} has no such anchor"


def wide(site: Path) -> Iterator[str]:
    """Yield the pages that scroll sideways on a phone."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 390, "height": 844})
        for path in sorted(site.rglob("*.html")):
            page.goto(path.resolve().as_uri())
            width = page.evaluate("document.scrollingElement.scrollWidth")
            if width > 390:
                yield f"{path.relative_to(site)}: {width} pixels wide on a phone of 390"
        browser.close()


def main() -> int:
    """Check the site that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, help="folder of the built pages")
    parser.add_argument("--phone", action="store_true", help="open every page as on a phone")
    arguments = parser.parse_args()
    site = arguments.site
    external: set[str] = set()
    found = list(problems(site, external))
    if arguments.phone:
        found += wide(site)
    print("\n".join(["links to other sites:", *(f"  {link}" for link in sorted(external))]))
    print("\n".join(found) if found else "all internal links lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
