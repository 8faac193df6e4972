"""The pages of the console with hostile content of every kind: each shows it as text, and each action does its work."""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import quote

import click
import pytest

from semel.cli.main import main
from tests.cli.command import Semel
from tests.harness.chromium import Browser, running_browser
from tests.server.console.accessibility import check_accessibility
from tests.server.console.browser import PHONE, WIDE, ConsolePage, console_page
from tests.server.console.site import HOSTILE, ConsoleSite, console_site, fill, submit_job

READY = "document.querySelector('main h1') && !document.querySelector('main').innerText.includes('Looking')"


SCROLLED_SIDEWAYS = "[...document.querySelectorAll('.scroll')].some(one => one.scrollWidth > one.clientWidth + 1)"


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
    "hostile find": ("#/find/key-{subscription}", "document.querySelector('.write')"),
    "jobs": ("#/jobs", "document.querySelector('main table')"),
    "dead": ("#/jobs?state=dead", "document.querySelector('main table')"),
    "job": ("#/jobs/{dead}", "document.querySelector('.timeline')"),
    "streams": ("#/streams", "document.querySelector('main table')"),
    "stream": (
        "#/streams/{stream}",
        "document.querySelectorAll('table').length === 2 && /canary/.test(document.querySelector('pre').innerText)",
    ),
    "fork": ("#/streams/{fork}", "/Forked from orders/.test(document.body.innerText)"),
    "subscriptions": ("#/streams?subscriptions=1", "document.querySelectorAll('main tbody tr').length === 2"),
    "subscription": ("#/streams?subscription={subscription}", "document.querySelector('main table')"),
    "hook": ("#/streams?subscription={hook}", "document.querySelector('main .error')"),
    "events": ("#/events", "document.querySelector('main table')"),
    "partition": ("#/events/room-7", "document.querySelectorAll('main tbody tr').length === 3"),
    "ledger": ("#/ledger", "document.querySelector('main table')"),
    "organization": ("#/ledger/{org}", "document.querySelector('main table')"),
    "place": ("#/ledger/{org}/{vault}", "document.querySelector('main table')"),
    "block": ("#/ledger/{org}/{vault}/2", "document.querySelectorAll('.command').length === 2"),
    "state": ("#/ledger/{org}/{vault}/state", "document.querySelectorAll('main tbody tr').length === 2"),
    "present": (
        "#/ledger/{org}/{vault}/state?key=account-0%3Cb%3E",
        "document.querySelector('.badge[data-word=present]') && document.querySelectorAll('.command').length === 2",
    ),
    "absent": (
        "#/ledger/{org}/{vault}/state?key={stream}&height=1",
        "document.querySelector('.badge[data-word=absent]') && document.querySelectorAll('.command').length === 2",
    ),
    "deltas": ("#/deltas", "document.querySelectorAll('main tbody tr').length === 2"),
    "gateway": ("#/deltas/shop", "document.querySelectorAll('main tbody tr').length === 2"),
    "hostile gateway": ("#/deltas/{gateway}", "document.querySelectorAll('main tbody tr').length === 2"),
    "row": ("#/deltas/shop/todos/row-1", "document.querySelectorAll('main tbody tr').length === 5"),
    "hostile row": (
        "#/deltas/{gateway}/todos/{hostile_row}",
        "document.querySelectorAll('main tbody tr').length === 2",
    ),
    "column": ("#/deltas/shop/todos/row-1/title", "document.querySelectorAll('main tbody tr').length === 3"),
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
        assert not page.run(SCROLLED_SIDEWAYS)
        page.shot(f"{name.replace(' ', '-')}-{scheme}-{size[0]}")
    for command in page.run("[...document.querySelectorAll('.command code')].map(one => one.innerText)"):
        parse(command)


def parse(command: str) -> None:
    """Fail if the command does not exist or does not take these words; nothing is run."""
    name, *words = shlex.split(command)
    assert name == "semel", command
    context, found = click.Context(main), cast(click.Command, main)
    while isinstance(found, click.Group):
        _, inner, words = found.resolve_command(context, words)
        assert inner is not None, command
        found = inner
    found.make_context(name, words)


def test_every_command_of_an_empty_page_exists(browser: Browser, tmp_path: Path) -> None:
    with console_site(tmp_path) as site, console_page(browser, site.url) as page:
        for name in ("streams", "events", "jobs", "ledger", "deltas", "find"):
            page.open(f"#/{name}", "document.querySelector('.empty')")
            for command in page.run("[...document.querySelectorAll('.command code')].map(one => one.innerText)"):
                if command.startswith("semel"):
                    parse(command)
            check_accessibility(page)
            page.shot(f"empty-{name}-light-1280")
        assert page.faults() == []


def test_a_stream_is_followed_live_and_its_keys_are_looked_up(page: ConsolePage, filled: FilledSite) -> None:
    stream = f"/v1/stream/{quote(filled.ids['stream'], safe='')}"
    page.open(filled.route("#/streams/{stream}"), "document.querySelector('.live').innerText === 'live'")
    content = "document.querySelector('.content').innerText"
    filled.site.client.post(
        stream, headers={"Content-Type": "text/plain"}, content="<b>just now</b>"
    ).raise_for_status()
    page.wait(f"{content}.endsWith('<b>just now</b>')")
    for label, value, said in (
        ("Idempotency key", "order-1", "Stored"),
        ("Idempotency key", "order-2", "No append"),
    ):
        page.run(f"document.querySelector('[aria-label=\"{label}\"]').value = '{value}'")
        page.run(f"document.querySelector('[aria-label=\"{label}\"]').form.requestSubmit()")
        page.wait(f"document.querySelector('main form + p.long').innerText.startsWith('{said}')")


def test_events_of_a_partition_are_followed_live(page: ConsolePage, filled: FilledSite) -> None:
    page.open("#/events/live-room", "document.querySelector('.empty')")
    event = {"id": "live-1", "partitions": ["live-room"], "event": {"type": "t", "payload": HOSTILE}}
    filled.site.client.post("/v1/events", json={"events": [event]}).raise_for_status()
    page.wait("document.querySelectorAll('main tbody tr').length === 1")
    assert "live-1" in page.text()
    page.run("document.querySelector('summary').click()")
    page.wait("document.querySelector('details[open] pre')")


@pytest.mark.parametrize(("name", "code"), [("block", 0), ("present", 0), ("absent", 1)])
def test_the_commands_of_a_proof_save_and_verify_it(
    page: ConsolePage, filled: FilledSite, tmp_path: Path, name: str, code: int
) -> None:
    """As they are shown, on the file that the first one writes; a proof that was changed is refused."""
    route, shown = PAGES[name]
    page.open(filled.route(route), shown)
    saved, verified = page.run("[...document.querySelectorAll('.command code')].map(one => one.innerText)")
    file, semel = tmp_path / "proof.json", Semel(filled.site.url)
    assert semel.here(*_words(saved, file)).code == code  # 1 for a key that is not there
    done = semel.here(*_words(verified, file))
    assert done.code == 0, done.err
    other = _words(verified, file)
    other[-1] = other[-1][:-1] + ("0" if other[-1][-1] != "0" else "1")
    assert semel.here(*other).code == 1


def _words(command: str, file: Path) -> list[str]:
    """The arguments of a command that is shown, with a file of ours."""
    return [str(file) if word == "proof.json" else word for word in shlex.split(command)[1:]]


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


def test_find_leads_to_the_effect_on_every_surface(page: ConsolePage, filled: FilledSite) -> None:
    delta = filled.site.client.get("/v1/sync/shop/pull?since=0&clientId=c&limit=1").json()["deltas"][0]
    ledger = b64decode(filled.ids["transaction"]).hex()
    table = "document.querySelector('main table')"
    for identity, label, route, drawn in (
        ("order-1", "Open the stream", "#/streams/{stream}", table),
        ("event-1", "Open the partition", "#/events/", table),
        (filled.ids["done"], "Open the job", "#/jobs/{done}", "document.querySelector('.timeline')"),
        (ledger, "Open the block", "#/ledger/{org}/{vault}/3", "document.querySelectorAll('.command').length === 2"),
        (f"{delta['deltaId']}@{delta['hlc']}", "Open the row", "#/deltas/shop/todos/row-1", table),
    ):
        page.open(
            f"#/find/{identity}?in=shop" if "@" in identity else f"#/find/{identity}",
            "document.querySelector('.write a')",
        )
        assert page.run("document.querySelector('.write a').innerText") == label
        page.click(".write a")
        page.wait(f"location.hash.startsWith({filled.route(route)!r}) && {drawn}")


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
