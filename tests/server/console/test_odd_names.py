"""Names that a URL cannot carry: half a surrogate pair, and segments of dots, which browsers take out of a path."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.harness.chromium import running_browser
from tests.server.console.browser import ConsolePage, console_page
from tests.server.console.site import ConsoleSite, console_site, push_delta

HALF = "half-\ud800"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with console_site(tmp_path_factory.mktemp("odd")) as running:
        clock = int(time.time() * 1_000) - 60_000
        for number, row in enumerate((HALF, "whole")):
            push_delta(running.client, "odd", row, HALF, str((clock + number) << 16), {"title": HALF})
        org = running.client.post("/ledger/v1/orgs", json={"name": "odd"}).raise_for_status().json()["slug"]["slug"]
        write = {"clientId": "till", "sequence": "1", "operations": [{"setEntity": {"key": "..", "value": "eA=="}}]}
        running.client.post(f"/ledger/v1/orgs/{org}/writes", json=write).raise_for_status()
        yield running


@pytest.fixture
def page(site: ConsoleSite) -> Iterator[ConsolePage]:
    with running_browser() as browser, console_page(browser, site.url) as tab:
        yield tab
        assert tab.faults() == []


def test_a_row_whose_id_is_no_text_of_a_url_is_listed_without_a_link(page: ConsolePage) -> None:
    page.open("#/deltas/odd/todos", "document.querySelectorAll('main tbody tr').length === 2")
    assert page.run("[...document.querySelectorAll('main td.name a')].map(one => one.innerText)") == ["whole"]
    assert "half-" in page.text()


@pytest.mark.parametrize("route", ["#/streams/../caller", "#/streams/%2e%2e/caller", "#/streams/a%2F..%2F..%2Fcaller"])
def test_a_route_with_segments_of_dots_leads_to_no_other_call(page: ConsolePage, route: str) -> None:
    page.open(route, "document.querySelector('main .error')")
    assert "`..`" in page.text()
    assert "roles" not in page.text()


def test_a_key_of_dots_is_told_to_be_out_of_reach_of_a_browser(page: ConsolePage) -> None:
    page.open("#/ledger/1/0/state?key=..", "document.querySelector('main .error')")
    assert "A browser cannot ask for the name `..`" in page.text()
