"""Each action of the console leaves its audit line with its actor, and a reader has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.chromium import Browser, running_browser
from tests.harness.together import eventually
from tests.harness.tokens import token_file
from tests.server.console.browser import ConsolePage, console_page
from tests.server.console.site import ADMIN, HOSTILE, SVG, ConsoleSite, console_site, fill_deltas, submit_job

WORKER = "the-worker-token"
OPERATOR = "ada-<b onclick=canary=6>the-operator</b>"
"""The name of the administrator, which the console shows too."""
ACTOR = f"client:{OPERATOR}"
"""The same in stored data."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    folder: Path = tmp_path_factory.mktemp("actions")
    names = {
        OPERATOR: (ADMIN, ("admin",), ()),
        "worker": (WORKER, ("read", "write"), ()),
    }
    with console_site(folder, SEMEL_TOKENS=str(token_file(folder, names))) as running:
        yield running


@pytest.fixture
def page(browser: Browser, site: ConsoleSite) -> Iterator[ConsolePage]:
    with console_page(browser, site.url) as tab:
        yield tab
        assert tab.faults() == []


def signed_in(page: ConsolePage, token: str, route: str, shown: str) -> None:
    page.open(route, "document.querySelector('#token')")
    page.write(token)
    page.press("Enter")
    page.wait(shown)


def failed_job(site: ConsoleSite, key: str, queue: str) -> str:
    job = str(submit_job(site.client, kind="k", queue=queue, idempotency_key=key, max_attempts=1)["job_id"])
    claim = {"worker_id": "w", "queues": [queue], "wait_ms": 0}
    lease = site.client.post("/v1/jobs/claim", json=claim).json()["jobs"][0]["lease_token"]
    error = {"lease_token": lease, "error": {"code": "BROKEN", "message": HOSTILE}}
    site.client.post(f"/v1/jobs/{job}/fail", json=error).raise_for_status()
    return job


def ordered_by(site: ConsoleSite, event: str, member: str) -> dict[str, str]:
    """The actor of each job's line."""
    lines = site.client.get("/v1/audit", params={"event": event, "limit": 500}).raise_for_status().json()["lines"]
    return {one["details"]["job_id"]: one["details"][member] for one in lines}


def test_cancelling_one_job_names_its_actor(page: ConsolePage, site: ConsoleSite) -> None:
    job = str(submit_job(site.client, kind="one", queue="one")["job_id"])
    signed_in(page, ADMIN, f"#/jobs/{job}", "document.querySelector('.timeline')")
    assert OPERATOR in page.run("document.querySelector('#caller').innerText")
    page.click_button("Cancel")
    page.click_button("Cancel now")
    page.wait("document.querySelector('main .badge').innerText === 'failed'")
    eventually(lambda: ordered_by(site, "JOB_CANCELLED", "principal").get(job) == OPERATOR, "the line of the cancel")


def test_cancelling_in_bulk_leaves_a_line_with_the_actor_for_each_job(page: ConsolePage, site: ConsoleSite) -> None:
    jobs = [str(submit_job(site.client, queue="bulk", idempotency_key=f"b-{n}")["job_id"]) for n in range(4)]
    signed_in(page, ADMIN, "#/jobs?queue=bulk&state=queued", "document.querySelectorAll('main tbody tr').length === 4")
    page.click("main .filters label input")
    page.click_button("Cancel")
    page.click_button("Cancel now")
    page.wait("document.querySelector('main .empty')")
    eventually(
        lambda: dict.fromkeys(jobs, OPERATOR).items() <= ordered_by(site, "JOB_CANCELLED", "principal").items(),
        "a line of each cancel",
    )


def test_dead_letters_are_requeued_in_bulk_each_with_its_line(page: ConsolePage, site: ConsoleSite) -> None:
    jobs = [failed_job(site, f"dead-{number}", "dead") for number in range(3)]
    signed_in(page, ADMIN, "#/jobs?state=dead", "document.querySelectorAll('main tbody tr').length >= 3")
    assert HOSTILE in page.text()
    for job in jobs:
        page.run(f"document.querySelector('[aria-label=\"Choose {job}\"]').click()")
    page.click_button("Requeue")
    page.wait("document.querySelector('dialog[open]').innerText.includes('3 jobs')")
    page.click_button("Keep as is")
    assert {site.client.get(f"/v1/jobs/{job}").json()["state"] for job in jobs} == {"failed"}
    page.click_button("Requeue")
    page.click_button("Requeue now")
    page.wait("document.querySelector('#notice').innerText.startsWith('3 done')")
    assert {site.client.get(f"/v1/jobs/{job}").json()["state"] for job in jobs} == {"queued"}
    eventually(
        lambda: dict.fromkeys(jobs, ACTOR).items() <= ordered_by(site, "JOB_REVIVED", "by").items(),
        "a line of each requeue",
    )


def test_requeuing_one_job_names_its_actor_and_audit_details_are_text(page: ConsolePage, site: ConsoleSite) -> None:
    job = failed_job(site, "one-more", "again")
    signed_in(page, ADMIN, f"#/jobs/{job}", "document.querySelector('.timeline .bad')")
    page.click_button("Requeue")
    page.click_button("Requeue now")
    page.wait("document.querySelector('main .badge').innerText === 'queued'")
    eventually(lambda: ordered_by(site, "JOB_REVIVED", "by").get(job) == ACTOR, "the line of the requeue")
    page.open("#/audit?event=JOB_REVIVED", "document.querySelector('main table')")
    page.wait(f"document.querySelector('main').innerText.includes({OPERATOR!r})")


def test_without_the_admin_role_there_is_no_action_and_rows_come_from_the_log(
    page: ConsolePage, site: ConsoleSite
) -> None:
    with httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {WORKER}"}) as own:
        job = submit_job(own)["job_id"]
    found = fill_deltas(site.client)
    signed_in(page, WORKER, f"#/jobs/{job}", "document.querySelector('.timeline')")
    labels = "[...document.querySelectorAll('main button')].map(one => one.innerText)"
    assert not {"Requeue", "Cancel"} & set(page.run(labels))
    page.go("#/jobs", "document.querySelectorAll('main tbody tr').length === 1")
    assert not {"Requeue", "Cancel"} & set(page.run(labels))
    page.go("#/deltas/shop", "document.querySelectorAll('main tbody tr').length === 2")
    page.wait("/All \\d+ entries that you may see were read/.test(document.querySelector('main').innerText)")
    assert found["hostile_row"] in page.text()
    shown = "document.querySelector('h1').innerText === 'title' && document.querySelector('main tbody tr')"
    page.go("#/deltas/shop/todos/row-1/title", shown)
    assert "no write that lost" in page.text()
    assert SVG in page.text()
    page.shot("reader-column-light-1280")
