"""One-time links and console sessions over HTTP, as the command and the page use them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from semel.engine.clock import SystemWorld
from semel.server.console.session_table import CONSOLE_SESSION, ConsoleSessionRow
from semel.store.open import open_store
from semel.store.protocol import Changes, Range
from semel.surfaces.schema import MIGRATIONS, TABLES

PAGE = {"Sec-Fetch-Site": "same-origin"}


def bearer(token: str) -> dict[str, str]:
    """The header of a credential."""
    return {"Authorization": f"Bearer {token}"}


def make_link(url: str, token: str) -> str:
    """The code of a new link."""
    answer = httpx.post(f"{url}/console/links", headers=bearer(token), json={})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["code"])


def exchange(url: str, code: str, **headers: str) -> httpx.Response:
    """The answer to an exchange by a page of the console, unless the headers say otherwise."""
    return httpx.post(f"{url}/console/sessions", headers=headers or PAGE, json={"code": code}, timeout=60)


def sign_in(url: str, token: str) -> str:
    """The token of a session, by way of a link."""
    answer = exchange(url, make_link(url, token))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def sign_out(url: str, session: str) -> int:
    """The status of a sign-out."""
    return httpx.delete(f"{url}/console/sessions", headers=bearer(session) | PAGE).status_code


def caller(url: str, session: str) -> dict[str, Any]:
    """What the console knows of its caller; empty if the session is over."""
    answer = httpx.get(f"{url}/console/api/v1/caller", headers=bearer(session) | PAGE)
    assert answer.status_code in (200, 401), answer.text
    return dict(answer.json()) if answer.status_code == 200 else {}


def audit_lines(data: Path, event: str) -> list[dict[str, Any]]:
    """The details of all lines of one event."""
    texts = [path.read_text() for path in (data / "logs").glob("audit*.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return [dict(line["details"]) for line in lines if line["event"] == event]


def age_links(folder: Path, ms: int = 86_400_000) -> None:
    """Let all links and sessions of a stopped server be older."""
    with closing(open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        with store.read() as snapshot:
            rows = [ConsoleSessionRow(*row) for row in snapshot.range(Range(CONSOLE_SESSION, "", (), 1_000))]
        older = [row._replace(created_at=row.created_at - ms, ends_at=row.ends_at - ms) for row in rows]
        tx = store.begin(())
        tx.flush(Changes({}, {CONSOLE_SESSION: older}, {}))
        tx.commit()
