"""The site, built and read as a browser would."""

from __future__ import annotations

import functools
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SECONDS = 280


def built(folder: Path, *, tree: Path = ROOT, site: Path | None = None) -> Path:
    """Build the site of a tree below a folder, or into a site that exists; where the pages of its version are."""
    into = site or folder / "site"
    command = [sys.executable, "-m", "docs.site", "--into", str(into), "--work", str(folder / "work")]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return Path(done.stdout.strip()).parent


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
