"""Gateways for administrators: lists page by page, schemas and rules, the log in the server's own words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel.client import (
    AccessError,
    BadAnswerError,
    Client,
    ConfigurationError,
    RefusedError,
)
from semel.client.deltas import admin
from tests.client.both import BOTH, client_of
from tests.client.deltas_room import token
from tests.client.deltas_script import Says, Scripted
from tests.client.names import fresh
from tests.harness.server import RunningServer


def written(server: RunningServer, folder: Path, gateway: str, rows: int, name: str = "one") -> None:
    """A replica writes rows and goes."""
    with Client(server.url) as client, client.deltas(folder / f"{gateway}-{name}.db", gateway, name) as db:
        with db.transaction():
            for number in range(rows):
                db.insert("todos", f"{name} {number}", {"n": number, "text": "line\nbreak"})
        db.push()


@BOTH
async def test_gateways_and_clients_are_listed_page_by_page(
    server: RunningServer, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "PAGE", 2)
    gateways = sorted(fresh("many") for _ in range(3))
    for gateway in gateways:
        written(server, tmp_path, gateway, 1)
    async with client_of(kind, server.url, tenant=gateways[0]) as client:
        found = [name async for name in client.deltas_admin.gateways() if name in gateways]
        assert found == gateways
        assert [name async for name in client.deltas_admin.gateways(after=found[-1]) if name in gateways] == []
        # The server remembers clients of the binary dialect; those of the plain one need no memory.
        assert [one async for one in client.deltas_admin.clients()] == []
        assert await client.deltas_admin.forget_clients(["x", "y"]) == 0


def listed(count: int) -> Callable[[Any], Says]:
    """A server with clients, two a page."""

    def script(request: Any) -> Says:
        if request.target.startswith("/v1/admin/forget"):
            return Says(200, {"forgotten": len(json.loads(request.body)["clients"])})
        start = int(request.target.partition("after=")[2] or "0")
        clients = [
            {"key": f"k{at}", "clientId": f"c{at}" if at else None, "lastSeenMs": at}
            for at in range(start, min(start + 2, count))
        ]
        return Says(200, {"clients": clients, "hasMore": start + 2 < count, "next": str(start + 2)})

    return script


@BOTH
async def test_clients_are_listed_and_forgotten_in_parts(kind: str) -> None:
    async with Scripted(listed(5)) as server, client_of(kind, server.url) as client:
        clients = [one async for one in client.deltas_admin.clients("gw")]
        assert [(one.key, one.client_id, one.last_seen_ms) for one in clients[:2]] == [
            ("k0", None, 0),
            ("k1", "c1", 1),
        ]
        assert len(clients) == 5
        assert await client.deltas_admin.forget_clients([f"c{at}" for at in range(250)], "gw") == 250
        assert [len(json.loads(one.body)["clients"]) for one in server.asked[-3:]] == [100, 100, 50]


@BOTH
async def test_a_list_that_does_not_go_on_is_refused(kind: str) -> None:
    again = Says(200, {"gateways": ["a"], "hasMore": True})
    async with Scripted(lambda _: again) as server, client_of(kind, server.url) as client:
        with pytest.raises(BadAnswerError):
            [name async for name in client.deltas_admin.gateways()]


@BOTH
async def test_the_log_is_read_in_the_servers_own_words(
    server: RunningServer, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "PAGE", 3)
    gateway = fresh("log/é")
    async with client_of(kind, server.url) as client:
        [nothing] = [page async for page in client.deltas_admin.log(gateway)]
        assert (nothing.entries, nothing.texts, nothing.has_more) == ([], [], False)
        written(server, tmp_path, fresh("other"), 1)
        with Client(server.url) as writer, writer.deltas(tmp_path / "w.db", gateway, "one") as db:
            for number in range(8):
                db.insert("todos", str(number), {"n": 1e21, "text": "line\nbreak"})
            db.push()
        pages = [page async for page in client.deltas_admin.log(gateway)]
        texts = [text for page in pages for text in page.texts]
        assert [len(page.texts) for page in pages] == [3, 3, 2]
        assert [json.loads(text) for text in texts] == [entry for page in pages for entry in page.entries]
        assert all("\n" not in text and '"value":1e+21' in text.replace(" ", "") for text in texts)
        few = [page async for page in client.deltas_admin.log(gateway, since=pages[0].cursor, limit=4)]
        assert [text for page in few for text in page.texts] == texts[3:7]
        log = client.deltas_admin.log(gateway, since=pages[-1].cursor, every=0.01)
        with Client(server.url) as writer, writer.deltas(tmp_path / "w.db", gateway, "one") as db:
            db.insert("todos", "later", {})
            db.push()
        assert (await anext(log)).entries[0]["rowId"] == "later"
        await log.aclose()
        assert [page async for page in log] == []


@BOTH
async def test_schemas_rules_stats_and_flush(server: RunningServer, tmp_path: Path, kind: str) -> None:
    gateway = fresh("gw")
    async with client_of(kind, server.url, tenant=gateway) as client:
        calls = client.deltas_admin
        await calls.save_schema("todos", {"n": "number", "text": "string"})
        written(server, tmp_path, gateway, 4)
        stats = await calls.stats()
        assert (stats.deltas, stats.entries, stats.rows) == (4, 4, 4)
        assert stats.pushed_bytes > 100
        await calls.flush()
        rules = {"version": 1, "buckets": [{"name": "all", "tables": ["todos"], "filters": []}]}
        await calls.save_rules(rules)
        await calls.save_rules(json.dumps(rules).encode())
        with pytest.raises(RefusedError, match="_ERROR"):
            await calls.save_rules(b"{}")
        with pytest.raises(RefusedError):
            await calls.save_schema("todos", {"n": "string"})


@BOTH
async def test_a_call_without_a_gateway_and_without_the_role_is_refused(guarded: RunningServer, kind: str) -> None:
    async with client_of(kind, guarded.url, token=token("one", "gw")) as client:
        with pytest.raises(ConfigurationError, match="SEMEL_TENANT"):
            await client.deltas_admin.stats()
        with pytest.raises(AccessError):
            await client.deltas_admin.stats("gw")
