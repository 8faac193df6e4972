"""A plain write of every surface, over HTTP, runs without a task of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.namespaces import build_context
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from semel.surfaces.registry import NAMES
from tests.deltas.vectors import columns, delta
from tests.server.http.test_exchange import Reading

ORGS = "/ledger/v1/orgs"
ENTITY = {"setEntity": {"key": "ada", "value": "MTAw"}}
EVENT = {"id": "e1", "partitions": ["p"], "event": {"type": "order.placed", "payload": {}}}
PUSH = {"clientId": "c1", "lastSeenHlc": "0", "deltas": [delta("INSERT", columns(a=1), client="c1")]}
WRITES: dict[str, tuple[str, Any]] = {
    "streams": ("/v1/stream/s", {"n": 1}),
    "events": ("/v1/events", {"client_id": "c1", "events": [EVENT]}),
    "jobs": ("/v1/jobs", {"kind": "bill", "params": {}, "idempotency_key": "k1"}),
    "ledger": ("{org}/writes", {"clientId": "till-3", "sequence": "1", "operations": [ENTITY]}),
    "deltas": ("/v1/sync/g/push", PUSH),
}


class Server:
    """A server of all surfaces without a socket, and the tasks that it makes."""

    def __init__(self, data: Path) -> None:
        self.loop = asyncio.get_running_loop()
        settings = make_settings(data=str(data))
        self.context = build_context(settings, nowhere)
        self.app = App(self.context)
        self.tasks = 0
        self._host = make_host(settings, self.app)
        self.loop.set_task_factory(self._make_task)

    async def send(self, method: str, target: str, body: Any) -> tuple[int, bytes]:
        """One request on a connection of its own; its status and all of its answer."""
        pipe = Reading()
        protocol = HttpProtocol(self._host, self.loop)
        protocol.connection_made(cast(asyncio.Transport, pipe))
        content = json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""])
        protocol.data_received(head.encode() + content)
        until = time.monotonic() + 30
        while not pipe.written and time.monotonic() < until:  # noqa: ASYNC110 - the pipe has no event
            await asyncio.sleep(0.001)
        protocol.connection_lost(None)
        return pipe.statuses[0], b"".join(pipe.written)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        self.tasks += 1
        return asyncio.Task(work, loop=loop, **more)


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[Server]:
    """A server that is stopped at the end."""
    server = Server(data)
    try:
        for surface in server.app.surfaces:
            await surface.start()
        yield server
    finally:
        await server.context.engine.stop()
        server.context.audit.close()


@pytest.mark.parametrize("surface", NAMES)
def test_a_plain_write_runs_no_task(surface: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as server:
            target, body = WRITES[surface]
            if surface == "streams":
                assert (await server.send("PUT", target, {"n": 0}))[0] == 201
            if surface == "ledger":
                _, made = await server.send("POST", ORGS, {"name": "acme"})
                org = json.loads(made.partition(b"\r\n\r\n")[2])
                target = target.format(org=f"{ORGS}/{org['slug']['slug']}")
            before = server.tasks
            status, answer = await server.send("POST", target, body)
            assert (status // 100, server.tasks - before) == (2, 0), answer

    asyncio.run(test())
