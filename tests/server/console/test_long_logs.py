"""Rows and histories of a gateway whose log has more entries than one page of it, with progress and a stop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deltas.vectors import delta_id
from tests.harness.chromium import running_browser
from tests.server.console.browser import ConsolePage, console_page
from tests.server.console.site import ConsoleSite, console_site, push_delta

OTHERS = 12_000
"""More than two pages of the log, of 5,000 positions each, and more than the console once read."""
HOT = 6_000
"""Writes of one row: as many rows of a table take a browser minutes if all are drawn with each page."""


class LongGateway:
    """A gateway with one row that was written first, in the middle and last, and a write that lost."""

    def __init__(self, site: ConsoleSite) -> None:
        self.site = site
        self._clock = int(time.time() * 1_000) - 600_000
        self.ids = {"first": self._write("phone", "first")}
        self._fill(0)
        self.ids["middle"] = self._write("tablet", "middle")
        self.ids["late"] = self._write("phone", "late", ticks=-3)
        self._fill(OTHERS // 2)
        self.ids["last"] = self._write("phone", "last")

    def _write(self, author: str, value: str, ticks: int = 1) -> str:
        self._clock += ticks
        made = push_delta(self.site.client, "long", "mine", author, str(self._clock << 16), {"title": value})
        self._clock += 2
        return made

    def _fill(self, start: int) -> None:
        deltas: list[dict[str, Any]] = []
        for number in range(start, start + OTHERS // 2):
            one: dict[str, Any] = {"op": "INSERT", "table": "todos", "rowId": f"r-{number:05}", "clientId": "filler"}
            one |= {"columns": [{"column": "n", "value": number}], "hlc": str((self._clock << 16) + number)}
            deltas.append(one | {"deltaId": delta_id(one)})
        for begin in range(0, len(deltas), 2_000):
            body = {"clientId": "filler", "deltas": deltas[begin : begin + 2_000]}
            self.site.client.post("/v1/sync/long/push", json=body, timeout=60).raise_for_status()
        self._clock += 10


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongGateway]:
    with console_site(tmp_path_factory.mktemp("long")) as site:
        yield LongGateway(site)


@pytest.fixture
def page(long: LongGateway) -> Iterator[ConsolePage]:
    with running_browser() as browser, console_page(browser, long.site.url) as tab:
        yield tab
        assert tab.faults() == []


CELLS = "[...document.querySelectorAll('main tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
DONE = "/read to its end/.test(document.querySelector('.progress').innerText)"


def test_the_history_of_a_column_is_whole_and_names_who_lost_to_whom(page: ConsolePage, long: LongGateway) -> None:
    page.open("#/deltas/long/todos/mine", f"document.querySelectorAll('main table').length === 2 && {DONE}")
    page.run("[...document.querySelectorAll('main td a')].find(one => one.innerText === 'title').click()")
    page.wait(f"document.querySelector('h1').innerText === 'title' && {DONE}")
    assert page.run("location.hash") == "#/deltas/long/todos/mine/title"
    rows = page.run(CELLS)
    assert [row[1] for row in rows] == ["last", "late", "middle", "first"]
    became = [" ".join(row[3].split()) for row in rows]
    short = {name: f"{one[:12]}…" for name, one in long.ids.items()}
    assert became[0] == "current"
    assert became[1] == f"lost to {short['middle']} of tablet, whose clock is 1 ms later"
    assert became[2] == f"replaced by {short['last']} of phone"
    assert became[3] == f"replaced by {short['middle']} of tablet"
    assert '"last"' in page.run("document.querySelector('pre').innerText")
    page.shot("long-column-light-1280")


def test_a_read_that_is_stopped_says_what_is_missing_and_reads_on(page: ConsolePage, long: LongGateway) -> None:
    page.open("#/deltas")
    page.run(
        "window.real = fetch; window.held = []; window.fetch = async (url, given) => {"
        "if (/entries/.test(url)) await new Promise(go => held.push(go)); return real(url, given) }; 0"
    )
    page.go("#/deltas/long/todos/mine/title", "held.length === 1")
    page.run("held.pop()(); 0")
    page.wait("held.length === 1")
    assert "later writes are missing here" in page.text()
    assert "won so far" in page.text()
    page.click_button("Stop")
    page.run("held.pop()(); 0")
    page.wait("[...document.querySelectorAll('main button')].some(one => one.innerText === 'Read on')")
    page.shot("stopped-light-1280")
    assert [row[1] for row in page.run(CELLS)] == ["late", "middle", "first"]
    page.click_button("Read on")
    page.wait("held.length === 1")
    page.run("held.pop()(); 0")
    page.wait(DONE)
    assert [row[1] for row in page.run(CELLS)] == ["last", "late", "middle", "first"]


def test_the_rows_of_a_long_log_are_those_of_now(page: ConsolePage) -> None:
    page.open("#/deltas/long", "document.querySelectorAll('main tbody tr').length === 100")
    assert "title last" in " ".join(page.run(CELLS)[0][1].split())
    page.run("[...document.querySelectorAll('main a')].find(one => one.innerText === 'Next page').click()")
    page.wait("document.querySelector('main tbody tr').innerText.startsWith('r-00099')")


def test_a_row_with_thousands_of_writes_is_shown_in_parts(page: ConsolePage, long: LongGateway) -> None:
    deltas: list[dict[str, Any]] = []
    for number in range(HOT):
        one: dict[str, Any] = {"op": "UPDATE", "table": "todos", "rowId": "hot", "clientId": "phone"}
        one |= {
            "columns": [{"column": "title", "value": f"value {number}"}],
            "hlc": str((1_700_000_000_000 << 16) + number),
        }
        deltas.append(one | {"deltaId": delta_id(one)})
    for begin in range(0, HOT, 2_000):
        body = {"clientId": "phone", "deltas": deltas[begin : begin + 2_000]}
        long.site.client.post("/v1/sync/hot/push", json=body, timeout=60).raise_for_status()
    for route in ("#/deltas/hot/todos/hot/title", "#/deltas/hot/todos/hot"):
        page.open(route, DONE)
        history = "[...document.querySelectorAll('main table')].at(-1)"
        page.wait(f"{history}.tBodies[0].rows.length === 500")
        assert f"The first 500 of {HOT:,} are shown." in page.text()
        assert f"value {HOT - 1}" in page.run(f"{history}.tBodies[0].rows[0].innerText")
        page.run("[...document.querySelectorAll('main button')].find(one => one.innerText === 'Show more').click()")
        assert page.run(f"{history}.tBodies[0].rows.length") == 1_000
        assert f"The first 1,000 of {HOT:,} are shown." in page.text()
