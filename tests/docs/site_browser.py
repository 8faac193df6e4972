"""The site in Chromium: a server of its folder, a tab that notices every fault, and a second version to switch to."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.docs.site import ROOT, built
from tests.harness.chromium import PATIENCE_SECONDS, Browser, BrowserError
from tests.harness.server import HOST
from tests.server.console.browser import ConsolePage

OLDER = "0.0.9"
PAGES_LEFT = 10
TUTORIAL = """# The tutorial

## Kill the server

```console
$ kill -9 4711
```

| | number |
|---|---|
| KILL | 9 |
"""
PAGES = {
    "docs/index.md": "# Semel\n\nThe first page of an older version. Read [the tutorial](tutorial/server.md).\n",
    "docs/tutorial/server.md": TUTORIAL,
    "CONTRIBUTING.md": "# Contributing\n\nWelcome.\n",
    "CHANGELOG.md": "# Changes\n\nNone.\n",
}
"""What an older version had: fewer pages than the present one."""


class SitePage(ConsolePage):
    """A tab with a page of the site; `faults` has errors of scripts, missing files and requests to another origin."""

    def open(self, route: str, shown: str = "true") -> None:
        """Load a page, and wait until it is whole and an expression holds."""
        self._page.open(f"{self.base}/{route}")
        self.wait(shown)

    def run(self, script: str) -> Any:
        """What an expression comes to; it is asked again if the page is left meanwhile."""
        for _ in range(PAGES_LEFT):
            try:
                return super().run(script)
            except BrowserError as error:
                if "navigated" not in str(error):
                    raise
        raise BrowserError(f"the page is left again and again: {script}")

    def requests(self) -> list[str]:
        """Every URL that was asked for; pictures inside a style sheet are no requests."""
        return [url for url in super().requests() if not url.startswith("data:")]

    def press_mouse(self, selector: str) -> None:
        """Click where an element is seen."""
        x, y = self.run(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._page.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def search(self, words: str) -> str:
        """Type words into the search box of the page; the path of the first page that is found."""
        self.press_mouse(".sidebar-search")
        self.write(words)
        self.press("Enter")
        self.wait("document.querySelector('.search-summary').innerText.startsWith('Search finished')")
        self.wait("document.querySelector('ul.search li > a')")
        return str(self.run("new URL(document.querySelector('ul.search li > a').href).pathname"))


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A plain server of files; its address."""
    with ThreadingHTTPServer((HOST, 0), functools.partial(_Files, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)


@contextmanager
def site_page(browser: Browser, base: str) -> Iterator[SitePage]:
    """A new tab for the site."""
    with browser.page("about:blank") as page:
        yield SitePage(page, base)


def build_older_version(site: Path, folder: Path) -> None:
    """Build a version that came before into the same site, from a tree of its own with the same generator."""
    shutil.copytree(ROOT / "docs/site", folder / "docs/site", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    project = re.sub(r'^version = ".*"$', f'version = "{OLDER}"', project, flags=re.MULTILINE)
    (folder / "pyproject.toml").write_text(project, "utf-8")
    navigation = folder / "docs/site/navigation.py"
    text = navigation.read_text("utf-8")
    names = ("tutorial/server", "contributing", "changes")
    entries = ", ".join(f'Entry("{name}", "{name}", "")' for name in names)
    sections = f'SECTIONS = (Section("All", ({entries})),)'
    navigation.write_text(re.sub(r"^SECTIONS = \(\n.*?^\)$", sections, text, flags=re.MULTILINE | re.DOTALL), "utf-8")
    built(folder, tree=folder, site=site)
