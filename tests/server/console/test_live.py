"""A live verdict within 1 s of its write, on every surface, measured by the clock of the page itself.

The write is sent by the page, so that its answer and the change on the screen are timed by one clock. A timer of the
page tells when the machine stood still: only then is a measurement repeated, a limited number of times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import pytest

from tests.deltas.vectors import delta_id
from tests.harness.chromium import running_browser
from tests.server.console.browser import ConsolePage, console_page
from tests.server.console.site import ConsoleSite, console_site

BOUND_MS = 1_000
WRITES = 5
REPEATS = 5
"""Measurements of one surface that may be repeated because the machine stood still."""
STALL_MS = 200
WATCH = """
window.ticks = { last: performance.now(), worst: 0 };
setInterval(() => {
  const now = performance.now();
  ticks.worst = Math.max(ticks.worst, now - ticks.last);
  ticks.last = now;
}, 20);
window.measure = async (cell, url, headers, body) => {
  const place = document.querySelector(`[data-cell="${cell}"]`);
  const before = place.textContent;
  const seen = new Promise(tell => {
    const observer = new MutationObserver(() => {
      if (place.textContent !== before) { observer.disconnect(); tell(performance.now()) }
    });
    observer.observe(place, { childList: true, characterData: true, subtree: true });
  });
  ticks.worst = 0;
  const answer = await fetch(url, { method: 'POST', headers, body });
  const text = await answer.text();
  const answered = performance.now();
  const changed = await Promise.race([seen, new Promise(tell => setTimeout(tell, 10000, 1e9))]);
  return { ok: answer.ok, text: text.slice(0, 300), took: Math.max(0, changed - answered),
           stalled: Math.max(ticks.worst, performance.now() - ticks.last), before, after: place.textContent };
}; 0
"""


class LiveWrite(NamedTuple):
    """A write that the page sends."""

    path: str
    body: str
    headers: dict[str, str]


class Writer:
    """Makes new writes of each surface."""

    def __init__(self, site: ConsoleSite) -> None:
        client = site.client
        client.put("/v1/stream/live", headers={"Content-Type": "text/plain"}).raise_for_status()
        org = client.post("/ledger/v1/orgs", json={"name": "live"}).raise_for_status().json()["slug"]["slug"]
        vault = client.post(f"/ledger/v1/orgs/{org}/vaults", json={}).raise_for_status().json()["vault"]["slug"]
        self._ledger = f"/ledger/v1/orgs/{org}/vaults/{vault}/writes"
        self._number = 0

    def write(self, surface: str) -> LiveWrite:
        """A write that has not been sent yet."""
        self._number += 1
        key = f"live-{self._number}"
        if surface == "streams":
            return LiveWrite("/v1/stream/live", "x", {"Content-Type": "text/plain", "Idempotency-Key": key})
        path, body = {
            "events": self._event,
            "jobs": self._job,
            "ledger": self._transaction,
            "deltas": self._delta,
        }[surface](key)
        return LiveWrite(path, json.dumps(body), {"Content-Type": "application/json"})

    def _event(self, key: str) -> tuple[str, Any]:
        return "/v1/events", {"events": [{"id": key, "partitions": ["p"], "event": {"type": "t", "payload": 1}}]}

    def _job(self, key: str) -> tuple[str, Any]:
        return "/v1/jobs", {"kind": "live", "params": {}, "idempotency_key": key}

    def _transaction(self, key: str) -> tuple[str, Any]:
        operations = [{"setEntity": {"key": key, "value": "eA=="}}]
        return self._ledger, {"clientId": key, "sequence": "1", "operations": operations}

    def _delta(self, key: str) -> tuple[str, Any]:
        delta: dict[str, Any] = {"op": "INSERT", "table": "todos", "rowId": key, "clientId": "live"}
        delta |= {"columns": [{"column": "n", "value": 1}], "hlc": str(int(time.time() * 1_000) << 16)}
        return "/v1/sync/live/push", {"clientId": "live", "deltas": [delta | {"deltaId": delta_id(delta)}]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with console_site(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture(scope="module")
def writer(site: ConsoleSite) -> Writer:
    return Writer(site)


@pytest.fixture(scope="module")
def page(site: ConsoleSite) -> Iterator[ConsolePage]:
    with running_browser() as browser, console_page(browser, site.url) as tab:
        tab.open("#/overview", "document.querySelector('[data-cell=\"deltas fresh\"]')")
        tab.run(WATCH)
        yield tab
        assert tab.faults() == []


@pytest.mark.parametrize("surface", ["streams", "events", "jobs", "ledger", "deltas"])
def test_a_verdict_is_on_the_screen_within_a_second_of_its_answer(
    page: ConsolePage, writer: Writer, surface: str, record_property: Callable[[str, object], None]
) -> None:
    took: dict[str, list[float]] = {"fresh": [], "replay": []}
    repeats = 0
    while any(len(times) < WRITES for times in took.values()):
        one = writer.write(surface)
        for verdict, times in took.items():
            given = json.dumps([f"{surface} {verdict}", f"/console/api{one.path}", one.headers, one.body])
            found = page.run(f"measure(...{given})")
            assert found["ok"], found
            assert int(found["after"].replace(",", "")) == int(found["before"].replace(",", "")) + 1, found
            if found["took"] >= BOUND_MS and found["stalled"] >= STALL_MS and repeats < REPEATS:
                repeats += 1
                continue
            times.append(found["took"])
            time.sleep(0.07 * len(times))  # another phase of the page's own rhythm
    for verdict, times in took.items():
        record_property(f"{surface}_{verdict}_ms", f"median {median(times):.0f}, highest {max(times):.0f}")
        assert median(times) <= max(times) < BOUND_MS, (verdict, times, repeats)
