"""A writer that dies where it is told to: `python -m tests.client.events.writer URL ROOM FOLDER CLIENT POINT`.

It writes an event down in a SQLite file with its id, submits it, and marks it as done. It begins with those that are
written down and not done. POINT: `written` (before anything is sent), `sent` (the request is with the server, its
answer is not read), `answered` (before the mark).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from semel.client.transport.asyncio_network import AsyncioStream
from semel.client.transport.socket_network import BlockingStream
from tests.client.events.both import opened

POINTS = ("written", "sent", "answered")
COUNT = 5
LAST = COUNT - 1


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_the_answer() -> None:
    """Kill this process when the bytes of an answer have arrived, before they are read."""
    for stream in (AsyncioStream, BlockingStream):
        receive = stream.receive

        async def received(self: Any, seconds: float, receive: Any = receive) -> bytes:
            await receive(self, seconds)
            die()
            return b""

        stream.receive = received  # type: ignore[method-assign]


async def main() -> None:
    """Write down, submit, mark."""
    url, room, folder, kind, point = sys.argv[1:]
    base = sqlite3.connect(Path(folder) / "drafts.db", check_same_thread=False)
    base.execute("CREATE TABLE IF NOT EXISTS drafts (n INTEGER PRIMARY KEY, id TEXT, done INTEGER)")
    async with opened(kind, url) as client:
        for number in range(COUNT):
            base.execute("INSERT OR IGNORE INTO drafts VALUES (?, ?, 0)", (number, f"{room}-{number}"))
            base.commit()
            for name, n in base.execute("SELECT id, n FROM drafts WHERE NOT done ORDER BY n").fetchall():
                if n == LAST and point == "written":
                    die()
                if n == LAST and point == "sent":
                    die_at_the_answer()
                await client.events.submit("n", n, partitions=room, id=name)
                if n == LAST and point == "answered":
                    die()
                base.execute("UPDATE drafts SET done = 1 WHERE n = ?", (n,))
                base.commit()


if __name__ == "__main__":
    asyncio.run(main())
