"""Clients that behave as those of this dialect do over WebSocket, and a run of several of them against one gateway.

A local write is applied and pushed at once; the answer of a push becomes the cursor. What is pulled or broadcast is
applied blindly, all of it or nothing: an INSERT fails on a row that is there, an UPDATE of a row that is not there does
nothing. A broadcast moves the cursor forwards only; an empty page moves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.deltas.binary.caller import Line, Told
from tests.deltas.vectors import Message, columns, delta, now_ms, stamp

Row = dict[str, Any]


class Peer:
    """One client with its rows, its clock and its cursor; they outlive its connections."""

    def __init__(self, port: int, gateway: str, name: str, seed: int) -> None:
        self._port = port
        self._gateway = gateway
        self._name = name
        self._chance = random.Random(f"{seed}-{name}")
        self._made = 0
        self._hlc = 0
        self.rows: dict[str, Row] = {}
        self.cursor = 0
        self.failures: list[str] = []
        self._connect()

    def run(self, steps: int) -> None:
        """Random writes, now and then a pull, a pause to listen, or another connection."""
        for _ in range(steps):
            kind = self._chance.choices(("write", "pull", "listen", "reconnect"), (10, 3, 3, 1))[0]
            if kind == "write":
                self._write()
            elif kind == "pull":
                self.pull()
            elif kind == "listen":
                self._hear(self._line.behind(0.005))
            else:
                self.close()
                self._connect()

    def pull(self) -> bool:
        """Pull one page; whether there was anything in it."""
        told = self._line.pull(self.cursor)
        self._hear(self._line.before())
        if told.deltas and self._apply(told.deltas, "pull"):
            self.cursor = told.hlc
        self._hear(self._line.behind())
        return bool(told.deltas)

    def settle(self) -> bool:
        """Take what comes; whether anything came."""
        before = self.cursor
        while self.pull():
            pass
        self._hear(self._line.behind(0.05))
        return self.cursor != before

    def close(self) -> None:
        """Leave; what has come until then counts."""
        self._line.leave()

    def _connect(self) -> None:
        self._line = Line(self._port, self._gateway, self._name)
        if self._chance.random() < 0.5:
            self.pull()

    def _write(self) -> None:
        known = sorted(self.rows)
        kind = self._chance.choice(("INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE")) if known else "INSERT"
        cells = {self._chance.choice("abc"): self._chance.randrange(1_000)}
        if kind == "INSERT":
            self._made += 1
            row = f"{self._name}-{self._made}"
            self.rows[row] = dict(cells)
        elif kind == "UPDATE":
            row = self._chance.choice(known)
            self.rows[row] |= cells
        else:
            row, cells = self._chance.choice(known), {}
            del self.rows[row]
        self._hlc = max(self._hlc + 1, stamp(now_ms()))
        made = delta(kind, columns(**cells), row=row, client=self._name, hlc=self._hlc)
        answer = self._line.push(made)
        self._hear(self._line.before())
        self.cursor = answer.hlc
        self._hear(self._line.behind())

    def _hear(self, broadcasts: Sequence[Told]) -> None:
        for told in broadcasts:
            if self._apply(told.deltas, "broadcast"):
                self.cursor = max(self.cursor, told.hlc)

    def _apply(self, entries: Sequence[Message], way: str) -> bool:
        rows = {name: dict(cells) for name, cells in self.rows.items()}
        for entry in entries:
            name, cells = entry["rowId"], {one["column"]: one["value"] for one in entry["columns"]}
            self._hlc = max(self._hlc, int(entry["hlc"]))
            if entry["op"] == "DELETE":
                rows.pop(name, None)
            elif entry["op"] == "UPDATE" and name in rows:
                rows[name] |= cells
            elif entry["op"] == "INSERT" and name in rows:
                self.failures.append(f"{way}: INSERT of {name}, which is there")
                return False
            elif entry["op"] == "INSERT":
                rows[name] = cells
        self.rows = rows
        return True


def visible(rows: dict[str, Row]) -> dict[str, Row]:
    """What a person sees of rows: a column that is null is as good as absent."""
    return {name: {key: cell for key, cell in row.items() if cell is not None} for name, row in rows.items()}
