"""A reader that dies where it is told to: `python -m tests.client.events.reader URL ROOM FOLDER CURSOR CLIENT POINT N`.

It handles events until it has the one whose payload is `last`: an effect is a row of `effects` in a SQLite file. With
POINT it kills itself with SIGKILL at event number N:

| point | is |
|---|---|
| received | behind the hand-over, before the effect |
| handled | behind the effect, before the cursor is saved |
| saved | behind the save of the cursor; in a transaction before its commit |
| committed | behind the commit of effect and cursor |
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from semel.client import Cursor, FileCursor, TransactionCursor
from semel.client.events.values import START
from tests.client.events.both import opened

POINTS = ("received", "handled", "saved", "committed")
CURSORS = ("value", "file", "transaction")


class Reader:
    """The application: its database, its cursor, and where it dies."""

    def __init__(self, folder: Path, cursor: str, point: str, at: int) -> None:
        self._base = sqlite3.connect(folder / "app.db", check_same_thread=False)
        self._base.execute("CREATE TABLE IF NOT EXISTS effects (event TEXT, n INTEGER)")
        self._base.execute("CREATE TABLE IF NOT EXISTS kept (cursor TEXT)")
        TransactionCursor.migrate(self._base)
        self._base.commit()
        self._kind = cursor
        self._point, self._at = point, at
        kept = self._base.execute("SELECT cursor FROM kept ORDER BY rowid DESC LIMIT 1").fetchone()
        value = Cursor.of_text(kept[0]) if kept else START
        self.cursor: Any = {
            "value": value,
            "file": FileCursor(folder / "cursor", every=0),
            "transaction": TransactionCursor(self._base, "reader"),
        }[cursor]

    async def handle(self, follower: Any, event: Any) -> None:
        """The effect, and the cursor as its kind has it."""
        self._reach("received", event)
        self._base.execute("INSERT INTO effects VALUES (?, ?)", (event.id, event.data))
        if self._kind != "transaction":
            self._base.commit()
        self._reach("handled", event)
        if self._kind == "value":
            self._base.execute("INSERT INTO kept VALUES (?)", (event.cursor.text(),))
            self._base.commit()
        else:
            await follower.ack(event)
        self._reach("saved", event)
        self._base.commit()
        self._reach("committed", event)

    def _reach(self, point: str, event: Any) -> None:
        if point == self._point and event.data == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    """Follow until the last event."""
    url, room, folder, cursor, client_kind, point, at = sys.argv[1:]
    reader = Reader(Path(folder), cursor, point, int(at))
    async with opened(client_kind, url) as client:
        follower = client.events.follow(room, cursor=reader.cursor)
        while True:
            event = await anext(follower)
            if event.type == "last":
                break
            await reader.handle(follower, event)
        await follower.aclose()


if __name__ == "__main__":
    asyncio.run(main())
