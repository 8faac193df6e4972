"""Takes the pictures of the console in the pages: `python -m docs.screenshots`, about three minutes.

A real server gets writes of every surface, some of them twice, while Chromium shows the console. Take them anew when
the console looks different; no test compares them, because fonts differ from machine to machine.
"""

from __future__ import annotations

import base64
import math
import tempfile
import time
from pathlib import Path

import httpx

from tests.harness.chromium import running_browser
from tests.harness.server import RunningServer
from tests.server.console.browser import ConsolePage, console_page
from tests.server.console.site import push_delta

FOLDER = Path(__file__).parent / "operating"
SECONDS = 125.0
"""The charts show two minutes."""
QUALITY = 80
SIZE = (1100, 700)
JSON = {"Content-Type": "application/json"}


class Traffic:
    """Writes of every surface to one server. The answers of some are taken for lost, and they are sent again."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._number = 4700
        client.put("/v1/stream/orders", headers=JSON).raise_for_status()
        org = client.post("/ledger/v1/orgs", json={"name": "shop"}).raise_for_status().json()["slug"]["slug"]
        self._ledger = f"/ledger/v1/orgs/{org}/writes"

    def run(self, seconds: float) -> None:
        """Send writes at a rate that goes up and down."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            self._number += 1
            self._send(self._number)
            time.sleep(0.06 + 0.05 * math.sin(passed / 9))

    def _send(self, number: int) -> None:
        for _ in range(2 if number % 4 == 0 else 1):
            headers = JSON | {"Idempotency-Key": f"order-{number}"}
            self._client.post("/v1/stream/orders", headers=headers, json={"order": number}).raise_for_status()
        job = {"kind": "mail.send", "params": {"order": number}, "idempotency_key": f"mail-{number}"}
        event = {"id": f"placed-{number}", "partitions": ["shop"], "event": {"type": "order.placed"}}
        for _ in range(2 if number % 7 == 0 else 1):
            if number % 3 == 1:  # a principal may have 1,000 unfinished jobs
                self._client.post("/v1/jobs", json=job).raise_for_status()
            self._client.post("/v1/events", json={"events": [event]}).raise_for_status()
        if number % 3 == 0:
            change = {"setEntity": {"key": f"order:{number}", "value": base64.b64encode(b"paid").decode()}}
            write = {"clientId": "till-1", "sequence": str((number - 4698) // 3), "operations": [change]}
            self._client.post(self._ledger, json=write).raise_for_status()
        if number % 5 == 0:
            clock = str(time.time_ns() // 1_000_000 << 16)
            push_delta(self._client, "phones", f"row-{number}", "phone-7", clock, {"state": "open"})


def take(page: ConsolePage, name: str) -> None:
    """Keep a picture of what the tab shows."""
    picture = page.picture("webp", QUALITY)
    (FOLDER / f"console-{name}.webp").write_bytes(picture)
    print(f"docs/operating/console-{name}.webp: {len(picture):,} bytes")  # noqa: T201


def main() -> None:
    """Send writes, and take the pictures."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningServer(Path(folder) / "data") as server,
        httpx.Client(base_url=server.url) as client,
        running_browser() as browser,
        console_page(browser, server.url) as page,
    ):
        page.size(*SIZE)
        page.open("#/overview")
        Traffic(client).run(SECONDS)
        take(page, "overview")
        page.open("#/find/order-4704", "document.querySelectorAll('.timeline li').length > 2")
        take(page, "find")


if __name__ == "__main__":
    main()
