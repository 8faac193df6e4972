"""A key of a write is a text: what has another text after a restart, or the same for two callers, is refused unsent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from semel.client import AsyncClient
from tests.client.names import fresh
from tests.harness.server import RunningServer
from tests.once.key_values import NO_KEYS

DOORS: dict[str, Callable[[AsyncClient, str, Any], Awaitable[Any]]] = {
    "append": lambda client, name, key: client.streams.append(name, b"x", key=key),
    "append_many": lambda client, name, key: client.streams.append_many(name, [1], key=key),
    "submit": lambda client, name, key: client.jobs.submit(name, {}, key=key),
    "event": lambda client, name, key: client.events.submit(name, {}, partitions="orders", id=key),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_text_is_no_key(server: RunningServer, door: str) -> None:
    async def main() -> list[str]:
        passed, name = list[str](), fresh("keys")
        async with AsyncClient(server.url) as client:
            if door.startswith("append"):
                await client.streams.create(name, content_type="application/json")
            for what, made in NO_KEYS.items():
                key = made()
                if key is None or isinstance(key, str):
                    continue  # a new one, and texts are the server's to refuse
                try:
                    await DOORS[door](client, name, key)
                except Exception:  # noqa: BLE001 - of any kind: the types say str, and it was not sent or not taken
                    pass
                else:
                    passed.append(what)
                finally:
                    if inspect.iscoroutine(key):
                        key.close()
        return passed

    assert set(asyncio.run(main())) <= {"a date"}  # whose text is its own, and the same tomorrow
