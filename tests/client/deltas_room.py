"""Replicas of one gateway of a real server, each in a file of its own."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import jwt

from tests.client.names import DELTAS_SECRET, fresh
from tests.client.replica_kinds import Opened, open_replica
from tests.harness.server import RunningServer


class Room:
    """Replicas of one gateway, each in a file of its own."""

    def __init__(self, server: RunningServer, folder: Path, stack: AsyncExitStack) -> None:
        self.gateway = fresh("gw")
        self._server = server
        self._folder = folder
        self._stack = stack

    async def replica(self, name: str, **options: Any) -> Opened:
        """One more, or the same one opened again."""
        fixed: dict[str, Any] = {"gateway": self.gateway, "url": self._server.url, "client_id": name}
        return await self._stack.enter_async_context(open_replica(self._folder / f"{name}.db", **fixed | options))

    async def save_schema(self, columns: list[dict[str, str]]) -> None:
        """Say which columns `todos` has."""
        async with httpx.AsyncClient(base_url=self._server.url) as admin:
            body = {"table": "todos", "columns": columns}
            assert (await admin.post(f"/v1/admin/schema/{self.gateway}", json=body)).status_code == 200

    async def fresh_rows(self) -> dict[str, dict[str, Any]]:
        """The rows of `todos` as somebody sees them who comes new."""
        db = await self.replica(fresh("reader"))
        await db.pull()
        rows: dict[str, dict[str, Any]] = db.rows("todos")
        return rows


def token(client: str, gateway: str, seconds: float = 3_600.0, **claims: str) -> str:
    """What the guarded server knows a client by."""
    fixed = {"sub": client, "gw": gateway, "exp": int(time.time() + seconds)}
    return jwt.encode({**fixed, **claims}, DELTAS_SECRET, algorithm="HS256")


async def ruled(server: RunningServer, gateway: str) -> None:
    """Everybody sees the rows of his own organization."""
    filters = [{"column": "org", "op": "eq", "value": "jwt:org"}]
    rules = {"version": 1, "buckets": [{"name": "own", "tables": [], "filters": filters}]}
    admin = {"Authorization": f"Bearer {token('boss', gateway, role='admin')}"}
    async with httpx.AsyncClient(base_url=server.url, headers=admin) as http:
        assert (await http.post(f"/v1/admin/sync-rules/{gateway}", json=rules)).status_code == 200
