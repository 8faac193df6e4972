"""The pages of the console with hostile content of every kind: each shows it as text, and each action does its work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

import pytest

from tests.harness.chromium import Browser, running_browser
from tests.server.console.accessibility import check_accessibility
from tests.server.console.browser import PHONE, WIDE, ConsolePage, console_page
from tests.server.console.site import HOSTILE, ConsoleSite, console_site, fill, submit_job

READY = "document.querySelector('main h1') && !document.querySelector('main').innerText.includes('Looking')"


class FilledSite(NamedTuple):
    """A server with content, and the ids of some of it."""

    site: ConsoleSite
    ids: dict[str, str]

    def route(self, name: str) -> str:
        """A route of the console, with ids in place of names in braces."""
        return name.format(**{key: quote(value, safe="") for key, value in self.ids.items()})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledSite]:
    with console_site(tmp_path_factory.mktemp("console")) as site:
        yield FilledSite(site, fill(site.client))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def tab(browser: Browser, filled: FilledSite) -> Iterator[ConsolePage]:
    with console_page(browser, filled.site.url) as page:
        yield page


@pytest.fixture
def page(tab: ConsolePage) -> Iterator[ConsolePage]:
    tab.size(*WIDE)
    tab.colours("light")
    yield tab
    assert tab.faults() == []


PAGES = {
    "find": ("#/find/order-1", "document.querySelector('.write')"),
    "jobs": ("#/jobs", "document.querySelector('main table')"),
    "dead": ("#/jobs?state=dead", "document.querySelector('main table')"),
    "job": ("#/jobs/{dead}", "document.querySelector('.timeline')"),
    "audit": ("#/audit", "document.querySelector('main table')"),
}
"""Pages with content: the route, and what is there once it is drawn."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_harmless_and_fits_every_width(page: ConsolePage, filled: FilledSite, name: str) -> None:
    route, shown = PAGES[name]
    page.open(filled.route(route), shown)
    for scheme, size in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        page.colours(scheme)
        page.size(*size)
        check_accessibility(page)
        assert not page.is_too_wide()
        page.shot(f"{name}-{scheme}-{size[0]}")


def test_find_tells_when_a_write_happened_and_what_a_retry_gets(page: ConsolePage, filled: FilledSite) -> None:
    page.open("#/overview")
    page.press("/")
    page.write("invoice-4711")
    page.press("Enter")
    page.wait("document.querySelector('.write')")
    said = page.text()
    assert "took effect" in said
    assert "a retry gets" in said
    assert page.run("document.querySelector('.write .badge').innerText") == "replay"
    page.click(".write a")
    page.wait(f"location.hash === '#/jobs/{filled.ids['dead']}' && document.querySelector('.timeline')")
    page.open("#/find/never-sent", "document.querySelector('.empty')")
    assert "No write with this identity" in page.text()
    page.open(
        f"#/find/{quote('order-1')}?in={quote(filled.ids['stream'], safe='')}", "document.querySelector('.write')"
    )
    assert HOSTILE in page.text()


def test_a_job_shows_its_failure_and_can_run_again(page: ConsolePage, filled: FilledSite) -> None:
    job = submit_job(filled.site.client, kind="again", max_attempts=1, queue="again")["job_id"]
    claim = {"worker_id": "w", "queues": ["again"], "wait_ms": 0}
    taken = filled.site.client.post("/v1/jobs/claim", json=claim).json()
    lease = taken["jobs"][0]["lease_token"]
    error = {"lease_token": lease, "error": {"code": "BROKEN", "message": HOSTILE}}
    filled.site.client.post(f"/v1/jobs/{job}/fail", json=error).raise_for_status()
    page.open(f"#/jobs/{job}", "document.querySelector('.timeline .bad')")
    assert HOSTILE in page.text()
    page.click_button("Requeue")
    page.wait("document.querySelector('dialog[open]')")
    check_accessibility(page)
    page.shot("confirm-light-1280")
    page.click_button("Keep as is")
    page.wait("!document.querySelector('dialog')")
    assert filled.site.client.get(f"/v1/jobs/{job}").json()["state"] == "failed"
    page.click_button("Requeue")
    page.click_button("Requeue now")
    page.wait("document.querySelector('main .badge').innerText === 'queued'")
    assert filled.site.client.get(f"/v1/jobs/{job}").json()["state"] == "queued"
    page.click_button("Cancel")
    page.click_button("Cancel now")
    page.wait("document.querySelector('main .badge').innerText === 'failed'")
    events = {one["event"] for one in filled.site.client.get("/v1/audit").json()["lines"]}
    assert {"JOB_REVIVED", "JOB_CANCELLED"} <= events


def test_jobs_are_cancelled_in_bulk_after_a_question(page: ConsolePage, filled: FilledSite) -> None:
    for number in range(3):
        submit_job(filled.site.client, kind="bulk", queue="bulk", idempotency_key=f"bulk-{number}")
    page.open("#/jobs?queue=bulk&state=queued", "document.querySelectorAll('main tbody tr').length === 3")
    assert page.run(
        "[...document.querySelectorAll('main button')].every(one => one.disabled || one.type != 'button' "
        "|| one.innerText == 'Refresh')"
    )
    page.click("main .filters label input")
    page.click_button("Cancel")
    page.wait("document.querySelector('dialog[open]').innerText.includes('3 jobs')")
    page.click_button("Cancel now")
    page.wait("document.querySelector('main .empty')")
    jobs = filled.site.client.get("/v1/jobs?queue=bulk").json()["jobs"]
    assert [one["reason"] for one in jobs] == ["cancelled"] * 3


def test_the_audit_log_can_be_filtered(page: ConsolePage) -> None:
    page.open("#/audit", "document.querySelector('main table')")
    page.run("[...document.querySelectorAll('main td a')].find(one => one.innerText === 'DLQ_ENQUEUE').click()")
    page.wait("location.hash === '#/audit?event=DLQ_ENQUEUE' && document.querySelector('main table')")
    named = "[...new Set([...document.querySelectorAll('main td a')].map(one => one.innerText))].join()"
    page.wait(f"{named} === 'DLQ_ENQUEUE'")
