"""A tab with the console: keys, screenshots, colours and widths, and everything that the browser complains about."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.chromium import PATIENCE_SECONDS, Browser, Page

SHOTS = Path(os.environ.get("CONSOLE_SHOTS", Path(__file__).parents[3] / "build" / "console"))
"""Where screenshots are kept; git ignores the folder `build`."""
WIDE, PHONE = (1280, 860), (375, 760)
WATCH = """
window.canary = 0;
window.violations = [];
addEventListener('securitypolicyviolation', one => violations.push(one.violatedDirective + ' ' + one.blockedURI));
"""


class ConsolePage:
    """One tab. `faults` has script errors, failed requests for files, and violations of the policy."""

    def __init__(self, page: Page, base: str) -> None:
        self._page = page
        self.base = base
        page.ask("Runtime.enable")
        page.ask("Log.enable")
        page.ask("Network.enable")
        page.ask("Page.enable")
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.size(*WIDE)

    def size(self, width: int, height: int) -> None:
        """The size of the window; that of a phone has a touch screen's scale."""
        self._page.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def colours(self, scheme: str) -> None:
        """What the system prefers: `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._page.ask("Emulation.setEmulatedMedia", features=features)

    def open(self, route: str, shown: str = "document.querySelector('main h1')") -> None:
        """Load the console at a route, and wait until an expression holds."""
        self._page.ask("Page.navigate", url="about:blank")
        self._page.ask("Page.navigate", url=f"{self.base}/console{route}")
        self.wait(shown)

    def go(self, route: str, shown: str) -> None:
        """Follow a link inside the console."""
        self.run(f"location.hash = {json.dumps(route)}")
        self.wait(shown)

    def run(self, script: str) -> Any:
        """What an expression comes to."""
        return self._page.run(script)

    def wait(self, script: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.run(f"(() => {{ try {{ return !!({script}) }} catch {{ return false }} }})()"):
                return
            time.sleep(0.03)
        text = self.run("document.body.innerText.slice(0, 2000)")
        raise AssertionError(f"not within {seconds} s: {script}\n{text}\n{self.faults()}")

    def text(self) -> str:
        """What the page says."""
        return str(self.run("document.querySelector('main').innerText"))

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        named = {"Enter": "\r", "Escape": "", "Tab": "\t"}
        text = named.get(key, key)
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            given = {"text": text} if text and kind == "keyDown" else {}
            self._page.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **given)

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self._page.ask("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def click_button(self, label: str) -> None:
        """Click the button with this label."""
        find = f"[...document.querySelectorAll('button')].find(one => one.innerText.trim() === {json.dumps(label)})"
        self.wait(f"{find} && !{find}.disabled")
        self.run(f"{find}.click()")

    def shot(self, name: str) -> Path:
        """Keep a screenshot."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        path.write_bytes(self.picture("png"))
        return path

    def picture(self, form: str, quality: int | None = None) -> bytes:
        """What the window shows, as `png` or `webp`."""
        given = {} if quality is None else {"quality": quality}
        return base64.b64decode(self._page.ask("Page.captureScreenshot", format=form, **given)["data"])

    def is_too_wide(self) -> bool:
        """Whether the page scrolls sideways."""
        return bool(self.run("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"))

    def requests(self) -> list[str]:
        """Every URL that was asked for."""
        sent = (one for one in self._page.events if one["method"] == "Network.requestWillBeSent")
        return [str(one["params"]["request"]["url"]) for one in sent]

    def received_bytes(self) -> int:
        """Bytes of all answers, as they were sent."""
        ended = (one for one in self._page.events if one["method"] == "Network.loadingFinished")
        return sum(int(one["params"]["encodedDataLength"]) for one in ended)

    def faults(self) -> list[str]:
        """What the browser complains about."""
        found = [f"violation: {one}" for one in self.run("window.violations || []")]
        if self.run("window.canary || 0"):
            found.append("stored content was run")
        for event in self._page.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(event["params"]["exceptionDetails"])[:600])
            elif event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error" and "status of 4" not in entry["text"]:
                    found.append(f"{entry['text']} {entry.get('url', '')}")
        found += [f"foreign request: {url}" for url in self.requests() if not url.startswith((self.base, "about:"))]
        return found


@contextmanager
def console_page(browser: Browser, base: str) -> Iterator[ConsolePage]:
    """A new tab for the console of a server."""
    with browser.page("about:blank") as page:
        yield ConsolePage(page, base)
