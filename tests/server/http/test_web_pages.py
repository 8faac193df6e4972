"""What web pages can do to a server, seen in a real browser.

A page of another origin can neither read nor write nor open a WebSocket, not even when the name of its own host leads
to the server; a page of this machine can do all of it, with a credential where one is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.events.wire import fresh
from tests.harness.chromium import FOREIGN, REBOUND, Browser, Page, pages, running_browser
from tests.harness.server import RunningServer, free_port

TOKEN = "the-token-of-the-page"
LOOPBACK = ("127.0.0.1", "localhost")
JOB = {"kind": "k", "params": {}}
ORG = {"name": "page"}
EVENT = {"events": [{"id": "from-a-page", "partitions": ["p"], "event": {"type": "t", "payload": 1}}]}
READS = {
    "streams": "/v1/stream/kept",
    "a list of streams": "/v1/streams",
    "events": "/v1/events?partition=p",
    "jobs": "/v1/jobs",
    "ledger": "/ledger/v1/orgs",
    "deltas": "/v1/sync/g/pull?since=0&clientId=c",
    "metrics": "/metrics",
    "health": "/livez",
    "a diagnosis": "/v1/diagnose",
}
WRITES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "streams, a simple POST": ("POST", "/v1/stream/kept", {"Content-Type": "text/plain"}, "x"),
    "streams, a POST that asks first": (
        "POST",
        "/v1/stream/kept",
        {"Content-Type": "text/plain", "Idempotency-Key": "k"},
        "x",
    ),
    "streams, PUT": ("PUT", "/v1/stream/made", {"Content-Type": "text/plain"}, ""),
    "events": ("POST", "/v1/events", {"Content-Type": "application/json"}, json.dumps(EVENT)),
    "jobs": ("POST", "/v1/jobs", {"Content-Type": "application/json"}, json.dumps(JOB)),
    "ledger": ("POST", "/ledger/v1/orgs", {"Content-Type": "application/json"}, json.dumps(ORG)),
    "deltas, administration": (
        "POST",
        "/v1/admin/schema/g",
        {"Content-Type": "application/json"},
        '{"table": "t", "columns": [{"name": "c", "type": "string"}]}',
    ),
    "streams, DELETE": ("DELETE", "/v1/stream/doomed", {}, ""),
}
SOCKETS = ("/v1/events", "/v1/sync/g/ws")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def page_port() -> Iterator[int]:
    with pages() as port:
        yield port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """As `make run` starts it, with something in it."""
    with RunningServer(tmp_path / "data") as running:
        prepare(running.url)
        yield running


def prepare(url: str, **headers: str) -> None:
    with httpx.Client(base_url=url, headers=headers) as client:
        for name in ("kept", "doomed"):
            client.put(f"/v1/stream/{name}", headers={"Content-Type": "text/plain"}, content="first").raise_for_status()
        script = {"Content-Type": "text/javascript"}
        client.put("/v1/stream/script", headers=script, content="window.stolen = 'a secret';").raise_for_status()


def holdings(url: str, **headers: str) -> dict[str, Any]:
    """All that a page could have changed."""
    with httpx.Client(base_url=url, headers=headers) as client:
        return {
            "kept": client.get("/v1/stream/kept").text,
            "streams": [one["name"] for one in client.get("/v1/streams").json()["streams"]],
            "events": client.get("/v1/events?partition=p").json()["events"],
            "jobs": client.get("/v1/jobs").json()["jobs"],
            "orgs": client.get("/ledger/v1/orgs").json().get("organizations", []),
            "gateways": client.get("/v1/admin/gateways").json(),
        }


def fetched(page: Page, url: str, method: str = "GET", body: str | None = None, **options: Any) -> Any:
    """The status and the text that the page's script gets to see; `blocked` when it sees nothing."""
    given = {"method": method, "cache": "no-store"} | ({} if body is None else {"body": body}) | options
    return page.run(
        f"fetch({json.dumps(url)}, {json.dumps(given)})"
        ".then(async answer => answer.type == 'opaque' ? 'opaque' : [answer.status, await answer.text()])"
        ".catch(() => 'blocked')"
    )


def opened(page: Page, url: str) -> str:
    """Whether a WebSocket opens."""
    return str(
        page.run(
            "new Promise(tell => {"
            f"const socket = new WebSocket({json.dumps(url)});"
            "socket.onopen = () => { tell('open'); socket.close(); };"
            "socket.onerror = () => tell('blocked'); })"
        )
    )


def embedded(page: Page, url: str) -> Any:
    """What a script of the server, put into the page, leaves behind there."""
    return page.run(
        "new Promise(tell => { const part = document.createElement('script');"
        f"part.src = {json.dumps(url)}; part.onload = part.onerror = () => tell(window.stolen || null);"
        "document.body.append(part); })"
    )


def posted(page: Page, url: str) -> None:
    """Send a form into a frame, as every page may; return when the answer is there. One of 204 is not shown."""
    page.run(
        "new Promise(tell => { const frame = document.createElement('iframe'); frame.name = 'f';"
        "document.body.append(frame); const form = document.createElement('form');"
        f"form.action = {json.dumps(url)}; form.method = 'POST'; form.enctype = 'text/plain'; form.target = 'f';"
        "const field = document.createElement('input'); field.name = 'a'; field.value = 'b'; form.append(field);"
        "document.body.append(form); frame.onload = tell; setTimeout(tell, 3000); form.submit(); })"
    )


def attack(page: Page, base: str) -> dict[str, Any]:
    """Everything a page can try; what came of it, where anything did."""
    seen = {f"read {name}": fetched(page, base + path) for name, path in READS.items()}
    for name, (method, path, headers, body) in WRITES.items():
        seen[f"write {name}"] = fetched(page, base + path, method, body or None, headers=headers)
    fetched(page, f"{base}/v1/stream/kept", "POST", "blind", mode="no-cors", headers={"Content-Type": "text/plain"})
    fetched(page, f"{base}/v1/jobs", "POST", json.dumps(JOB), mode="no-cors")
    fetched(page, f"{base}/v1/events", "POST", json.dumps(EVENT), mode="no-cors")
    fetched(page, f"{base}/v1/admin/flush/g", "POST", "", mode="no-cors")
    posted(page, f"{base}/v1/stream/kept")
    seen["embed a script"] = embedded(page, f"{base}/v1/stream/script?offset=-1")
    for path in SOCKETS:
        seen[f"socket {path}"] = opened(page, base.replace("http", "ws", 1) + path)
    return {what: found for what, found in seen.items() if found not in ("blocked", None)}


@pytest.mark.parametrize("name", LOOPBACK)
def test_b3_a_page_of_another_origin_can_neither_read_nor_write(
    browser: Browser, page_port: int, server: RunningServer, name: str
) -> None:
    before = holdings(server.url)
    with browser.page(f"http://{FOREIGN}:{page_port}/") as page:
        assert attack(page, f"http://{name}:{server.port}") == {}
    assert holdings(server.url) == before


def test_b3_a_page_whose_own_name_comes_to_mean_the_server_can_neither_read_nor_write(
    browser: Browser, tmp_path: Path
) -> None:
    """DNS rebinding: to the browser all of it is the page's own origin."""
    port = free_port()
    server = RunningServer(tmp_path / "data", port=port)
    with ExitStack() as stack:
        with pages(port):
            page = stack.enter_context(browser.page(f"http://{REBOUND}:{port}/"))
        stack.enter_context(server)
        prepare(server.url)
        before = holdings(server.url)
        seen = attack(page, f"http://{REBOUND}:{port}")
        assert {what: found for what, found in seen.items() if found[0] != 403} == {}
        assert all("FORBIDDEN_ORIGIN" in found[1].upper() for found in seen.values())
        assert holdings(server.url) == before


@pytest.mark.parametrize("name", LOOPBACK)
@pytest.mark.parametrize("own", [*LOOPBACK, "app.localhost"])
def test_b3_a_page_of_this_machine_can_read_and_write(
    browser: Browser, page_port: int, server: RunningServer, own: str, name: str
) -> None:
    with browser.page(f"http://{own}:{page_port}/") as page:
        succeed(page, server, name)


def succeed(page: Page, server: RunningServer, name: str, **headers: str) -> None:
    base = f"http://{name}:{server.port}"
    for what, path in READS.items():
        answer = fetched(page, base + path, headers=headers)
        assert answer != "blocked", what
        assert answer[0] == 200, (what, answer)
    for what, (method, path, own, body) in WRITES.items():
        answer = fetched(page, base + path, method, body or None, headers=own | headers)
        assert answer != "blocked", what
        assert answer[0] in (200, 201, 202, 204), (what, answer)
    found = holdings(server.url, **headers)
    assert found["kept"] == "firstxx"
    assert found["streams"] == ["kept", "made", "script"]
    assert [len(found[one]) for one in ("events", "jobs", "orgs")] == [1, 1, 1]
    query = f"?token={headers['Authorization'].removeprefix('Bearer ')}" if headers else ""
    for path, more in zip(SOCKETS, ("", query), strict=True):
        assert opened(page, f"ws://{name}:{server.port}{path}{more}") == "open", path


def test_b3_with_credentials_a_page_needs_one_like_everyone(browser: Browser, page_port: int, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    digest = sha256(TOKEN.encode()).hexdigest()
    tokens.write_text(f'[[token]]\nname = "page"\nsha256 = "{digest}"\nroles = ["admin"]\n')
    own = f"http://localhost:{page_port}"
    env = {"SEMEL_TOKENS": str(tokens), "SEMEL_ALLOWED_ORIGINS": f"https://app.example, {own}"}
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with RunningServer(tmp_path / "data", env=env) as server:
        prepare(server.url, **bearer)
        with browser.page(f"{own}/") as page:
            for what, path in READS.items():
                expected = 200 if what == "health" else 401
                assert fetched(page, server.url + path)[0] == expected, what
            assert opened(page, f"ws://localhost:{server.port}/v1/sync/g/ws") == "blocked"
            before = holdings(server.url, **bearer)
            with browser.page(f"http://{FOREIGN}:{page_port}/") as stranger:
                assert fetched(stranger, f"{server.url}/v1/streams", headers=bearer) == "blocked"
                assert fetched(stranger, f"{server.url}/v1/stream/{fresh('s')}", "PUT", headers=bearer) == "blocked"
                assert opened(stranger, f"ws://localhost:{server.port}/v1/events") == "blocked"
                query = f"?token={TOKEN}"
                assert opened(stranger, f"ws://localhost:{server.port}/v1/sync/g/ws{query}") == "blocked"
            assert holdings(server.url, **bearer) == before
            succeed(page, server, "localhost", **bearer)


def test_a_page_reads_a_stream_and_its_304_again(browser: Browser, page_port: int, server: RunningServer) -> None:
    """A browser revalidates what it has with its tag."""
    url, content = f"{server.url}/v1/stream/long", "ünd so weiter. " * 2_000
    httpx.put(url, headers={"Content-Type": "text/plain; charset=utf-8"}, content=content).raise_for_status()
    script = (
        f"(async () => {{ const answer = await fetch({json.dumps(url)});"
        "return [answer.status, await answer.text()] })()"
    )
    with browser.page(f"http://127.0.0.1:{page_port}/") as page:
        for _ in range(2):
            assert page.run(script) == [200, content]
        httpx.post(url, headers={"Content-Type": "text/plain"}, content="end").raise_for_status()
        assert page.run(script)[1] == content + "end"
