"""The site, built and read as a browser would."""

from __future__ import annotations

import functools
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from docs.site.__main__ import own_version

ROOT = Path(__file__).parent.parent.parent
SECONDS = 280


def built(folder: Path) -> Path:
    """Build the site below a folder; where the pages of the present version are."""
    command = [sys.executable, "-m", "docs.site", "--into", str(folder / "site"), "--work", str(folder / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder / "site" / own_version()


class PageReader(HTMLParser):
    """What a page of HTML leads to, loads and names."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.images_without_words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif "src" in found:
            self.loads.append(found["src"])
        elif tag == "link" and found.get("rel") not in ("index", "search", "next", "prev", "canonical"):
            self.loads.append(found.get("href", ""))
        is_drawing = tag == "svg" and "drawing" in found.get("class", "").split()
        if (tag == "img" or is_drawing) and not found.get("alt" if tag == "img" else "aria-label"):
            self.images_without_words.append(str(found))


@functools.cache
def page(path: Path) -> PageReader:
    """A page, read once."""
    reader = PageReader()
    reader.feed(path.read_text("utf-8"))
    return reader
