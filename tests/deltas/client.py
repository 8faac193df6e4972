"""A scripted client that does what the published LakeSync client does; where that one is careless, so is this one.

It keeps its rows in a SQLite database of its own and applies what it pulls as plain INSERT, UPDATE and DELETE, a page
in one transaction: one entry that fails takes the page back, and the client stays where it was. The answer of a push
becomes its cursor. Nothing here imports the code under test.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.deltas.frames import checkpoint_entries
from tests.deltas.truth import Rows, without_nulls
from tests.deltas.vectors import columns, delta, now_ms
from tests.deltas.wire import Answer, Deltas, Message, path

TABLES: Mapping[str, Sequence[str]] = {"todos": ("title", "note", "done"), "tags": ("name", "hue")}
"""The tables that every client has, and their columns."""
PAGE, BATCH, MAX_TRIES = 1_000, 100, 10
PENDING, SENDING = "pending", "sending"
STREAM = "application/x-lakesync-checkpoint-stream"


@dataclass
class Waiting:
    """A delta in the outbox. One that is acknowledged is in it no more."""

    delta: Message
    state: str = PENDING
    tries: int = 0


class Scripted:
    """One replica. `physical` is its wall clock, which may be wrong; `journal` is told all that it does."""

    def __init__(
        self,
        deltas: Deltas,
        gateway: str,
        name: str,
        *,
        pushes_first: bool = True,
        physical: Callable[[], int] = now_ms,
        journal: list[str] | None = None,
    ) -> None:
        self.deltas = deltas
        self.gateway = gateway
        self.name = name
        self.pushes_first = pushes_first
        self.cursor = 0
        self.outbox: list[Waiting] = []
        self.acknowledged: list[Message] = []
        self.dropped: list[Message] = []
        """What was given up: after ten failures, or because something newer was pulled before it was pushed."""
        self.failures: list[str] = []
        """Why pages could not be applied."""
        self.journal = [] if journal is None else journal
        self.physical = physical
        self._last = 0
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for table, names in TABLES.items():
            self._run(f"CREATE TABLE {table} (_rowId TEXT PRIMARY KEY, {', '.join(names)})")

    def close(self) -> None:
        self._database.close()

    def rows(self) -> Rows:
        """What is in its database."""
        found: Rows = {}
        for table, names in TABLES.items():
            for row, *cells in self._run(f"SELECT _rowId, {', '.join(names)} FROM {table}"):
                found[table, row] = without_nulls(dict(zip(names, cells, strict=True)))
        return found

    def tick(self) -> int:
        """The next reading of its own clock, which knows nothing of the others'."""
        self._last = max(self._last + 1, self.physical() << 16)
        return self._last

    # -- what the application does -------------------------------------------------------------------------------------

    def write(self, op: str, row: str, table: str = "todos", **values: Any) -> Message | None:
        """One of the three below."""
        if op == "DELETE":
            return self.delete(row, table)
        return self.insert(row, table, **values) if op == "INSERT" else self.update(row, table, **values)

    def insert(self, row: str, table: str = "todos", **values: Any) -> Message:
        """A row that the application does not see yet."""
        names, marks = ["_rowId", *values], ["?"] * (1 + len(values))
        self._run(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})", row, *values.values())
        return self._queued("INSERT", table, row, values)

    def update(self, row: str, table: str = "todos", **values: Any) -> Message | None:
        """New values for a row that is there; None if none of them is new."""
        before = self._read(table, row)
        assert before is not None, f"{self.name} has no row {row}"
        self._run(
            f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in values)} WHERE _rowId = ?", *values.values(), row
        )
        fresh = {name: value for name, value in values.items() if before[name] != value}
        return self._queued("UPDATE", table, row, fresh) if fresh else None

    def delete(self, row: str, table: str = "todos") -> Message:
        """Away with a row that is there."""
        assert self._read(table, row) is not None, f"{self.name} has no row {row}"
        self._run(f"DELETE FROM {table} WHERE _rowId = ?", row)
        return self._queued("DELETE", table, row, {})

    def _queued(self, op: str, table: str, row: str, values: Mapping[str, Any]) -> Message:
        made = delta(op, columns(**values), row=row, client=self.name, hlc=self.tick(), table=table)
        self.outbox.append(Waiting(made))
        self._note(f"{op} {table}/{row} {dict(values)} @{made['hlc']}")
        return made

    # -- a cycle -------------------------------------------------------------------------------------------------------

    def cycle(self) -> list[Message]:
        """What it does every ten seconds; the entries that it has applied."""
        is_first = self.cursor == 0
        if self.pushes_first:
            self.push()
        if is_first:
            self.take_checkpoint()
        pulled = self.pull()
        if not self.pushes_first:
            self.push()
        return pulled

    def push(self, *, lose: bool = False) -> Answer | None:
        """Push the oldest; `lose` is an answer that never comes. None if nothing was pushed or heard."""
        batch = [one for one in self.outbox if one.state == PENDING][:BATCH]
        for one in [one for one in batch if one.tries >= MAX_TRIES]:
            batch.remove(one)
            self._drop(one)
        if not batch:
            return None
        for one in batch:
            one.state = SENDING
        sent, tick = [one.delta for one in batch], str(self.tick())
        answer = self._heard(
            lambda: self.deltas.push(self.gateway, sent, client=self.name, expect=None, lastSeenHlc=tick)
        )
        if answer is None or answer.http != 200 or lose:
            for one in batch:
                one.state, one.tries = PENDING, one.tries + 1
            self._note(f"push of {len(batch)} failed: {'lost' if answer is None or lose else answer.body}")
            return None
        self.outbox = [one for one in self.outbox if one not in batch]
        self.acknowledged += [one.delta for one in batch]
        self.cursor = answer.hlc
        self._note(f"push of {len(batch)}, {answer['duplicates']} known: cursor {self.cursor}")
        return answer

    def push_all(self) -> None:
        """Push until nothing is left."""
        while self.outbox:
            assert self.push() is not None, self.journal[-5:]

    def pull(self, *, lose: bool = False, limit: int = PAGE) -> list[Message]:
        """Pull a page and apply it; `lose` is an answer that never comes."""
        cursor = self.cursor
        page = self._heard(lambda: self.deltas.pull(self.gateway, cursor, client=self.name, limit=limit, expect=None))
        if page is None or page.http != 200 or lose:
            self._note(f"pull from {self.cursor} failed: {'lost' if page is None or lose else page.body}")
            return []
        entries: list[Message] = page["deltas"]
        shown = [f"{one['op']} {one['rowId']} {cells_of(one)} by {one['clientId']}" for one in entries]
        self._note(f"pull from {self.cursor}: {shown}, cursor {page.hlc}")
        if not entries or not self._applied(entries):
            return []
        self.cursor = page.hlc
        return entries

    def _heard(self, call: Callable[[], Answer]) -> Answer | None:
        """The answer to a call; None if none came, and the journal says why."""
        try:
            return call()
        except httpx.TransportError as error:
            self._note(f"no answer: {error!r}")
            return None

    def pull_all(self, limit: int = PAGE) -> list[Message]:
        """Pull until there is nothing more."""
        found: list[Message] = []
        while entries := self.pull(limit=limit):
            found += entries
        return found

    def take_checkpoint(self, *, names_itself: bool = False) -> bool:
        """Take the state of all rows at once, if it is offered; whether it was. The published client is nameless."""
        query = f"?clientId={quote(self.name)}" if names_itself else ""
        response = self.deltas.send("GET", path(self.gateway, "checkpoint") + query, headers={"Accept": STREAM})
        if response.status_code == 404:
            return False
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"] == STREAM, response.headers
        entries = list(checkpoint_entries(response.content))
        self._note(f"checkpoint of {len(entries)}, cursor {response.headers['X-Checkpoint-Hlc']}")
        if entries:
            self._applied(entries)
        # The cursor moves on even if the rows could not be applied: that is what the published client does.
        self.cursor = int(response.headers["X-Checkpoint-Hlc"])
        return True

    # -- applying ------------------------------------------------------------------------------------------------------

    def _applied(self, entries: Sequence[Message]) -> bool:
        waiting = {row_of(one.delta): one for one in self.outbox if one.state == PENDING}
        self._run("BEGIN")
        for entry in entries:
            try:
                self._apply_over(entry, waiting.get(row_of(entry)))
            except sqlite3.Error as error:
                self._run("ROLLBACK")
                self.failures.append(f"{self.name}: {error}: {entry['op']} {entry['rowId']} {cells_of(entry)}")
                self._note(f"the page is taken back: {self.failures[-1]}")
                return False
        self._run("COMMIT")
        return True

    def _apply_over(self, entry: Message, waiting: Waiting | None) -> None:
        """Apply an entry; over a change of the same row that waits to be pushed, the newer of the two wins."""
        if waiting is None:
            self._apply(entry)
            return
        local = waiting.delta
        if (int(local["hlc"]), local["clientId"]) > (int(entry["hlc"]), entry["clientId"]):
            return
        if "DELETE" not in (local["op"], entry["op"]):
            op = "INSERT" if local["op"] == entry["op"] == "INSERT" else "UPDATE"
            merged = cells_of(local) | cells_of(entry)
            entry = entry | {"op": op, "columns": columns(**merged)}
        self._apply(entry)
        if waiting in self.outbox:
            self._drop(waiting)

    def _apply(self, entry: Message) -> None:
        table, row, cells = entry["table"], entry["rowId"], cells_of(entry)
        if entry["op"] == "INSERT":
            names, marks = ["_rowId", *cells], ["?"] * (1 + len(cells))
            self._run(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(marks)})", row, *cells.values())
        elif entry["op"] == "DELETE":
            self._run(f"DELETE FROM {table} WHERE _rowId = ?", row)
        elif cells:
            changes = ", ".join(f"{name} = ?" for name in cells)
            self._run(f"UPDATE {table} SET {changes} WHERE _rowId = ?", *cells.values(), row)

    def _drop(self, waiting: Waiting) -> None:
        self.outbox.remove(waiting)
        self.dropped.append(waiting.delta)
        self._note(f"gives up {waiting.delta['op']} {waiting.delta['rowId']} @{waiting.delta['hlc']}")

    def _read(self, table: str, row: str) -> Message | None:
        found = self._run(f"SELECT {', '.join(TABLES[table])} FROM {table} WHERE _rowId = ?", row)
        return dict(zip(TABLES[table], found[0], strict=True)) if found else None

    def _run(self, statement: str, *values: Any) -> list[Any]:
        return self._database.execute(statement, values).fetchall()

    def _note(self, what: str) -> None:
        self.journal.append(f"{self.name}: {what}")


def row_of(one: Mapping[str, Any]) -> tuple[str, str]:
    """The row that a delta or an entry is about."""
    return one["table"], one["rowId"]


def cells_of(one: Mapping[str, Any]) -> Message:
    """The columns of a delta or an entry."""
    return {column["column"]: column["value"] for column in one["columns"]}
