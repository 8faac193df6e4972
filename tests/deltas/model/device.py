"""A client of the plain dialect without its network: the replica of the SDK in a file of its own, and its requests."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semel.client.deltas import answers
from semel.client.deltas.file import LocalFile
from semel.client.deltas.outbox import Queued
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.state import FileClock
from semel.client.json_answer import facts_of
from semel.kernel.hashes import json_text
from semel.kernel.json.canonical import parse
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.model import Delta, DeltaOp
from semel.surfaces.deltas.wire.push_body import PushBody, parse_push, read_delta
from tests.deltas.model.replicas import TABLE, Row, choose

BATCH = 4
BATCH_BYTES = 1_000_000


class Device:
    """One replica, over as many openings of its file as there are."""

    def __init__(self, name: str, folder: Path, claims: Mapping[str, tuple[str, ...]]) -> None:
        self.name = name
        self.claims = claims
        self._path = folder / f"{json_text(name).encode().hex()}.db"
        self.physical_ms = 0
        """What its clock shows."""
        self.line: int | None = None
        """Where the next page over its WebSocket begins; None without one."""
        self.on_its_way: bytes | None = None
        """A page that the server has sent over it."""
        self._open()

    def _open(self) -> None:
        self._file = LocalFile(self._path)
        self._file.bind("gw", "http://model", self.name, self.name, moved=False)
        self.replica = LocalReplica(self._file, FileClock(self._file, lambda: self.physical_ms), self.name)

    def close(self) -> None:
        """Let go of the file."""
        self.line = self.on_its_way = None
        self._file.close()

    def reopen(self) -> None:
        """As after the end of its process."""
        self.close()
        self._open()

    def copy(self) -> None:
        """Keep a copy of the file as it is."""
        self.close()
        shutil.copy(self._path, self._path.with_suffix(".copy"))
        self._open()

    def go_back(self) -> bool:
        """The older copy takes the file's place; whether there is one."""
        if not self._path.with_suffix(".copy").exists():
            return False
        self.close()
        shutil.copy(self._path.with_suffix(".copy"), self._path)
        self._open()
        return True

    @property
    def rows(self) -> dict[str, Row]:
        """Its rows, as texts."""
        return {
            json_text(row): {name: json_text(value) for name, value in columns.items()}
            for row, columns in self.replica.rows(TABLE).items()
        }

    def write(self, chance: random.Random, fresh_row: str, always: Mapping[str, Any]) -> Delta | None:
        """Insert a row, or change or delete one that is there; `always` are columns that a write sets besides."""
        choice = choose(chance, self.rows, fresh_row)
        if choice is None:
            return None
        op, row, columns = choice
        values = {column.name: json.loads(column.value) for column in columns} | dict(always)
        row_id: str = json.loads(row)
        if op is DeltaOp.DELETE:
            name = self.replica.delete(TABLE, row_id)
        elif op is DeltaOp.INSERT:
            name = self.replica.insert(TABLE, row_id, values)
        else:
            name = self.replica.update(TABLE, row_id, values)
        if name is None:
            return None
        [body] = [one.body for one in self.queued() if one.delta_id == name]
        return read_delta(parse(body), None)

    def queued(self) -> list[Queued]:
        """Everything that it has to send."""
        return self.replica.outbox.head(self.replica.outbox.end(), 10_000, 10**9)

    def batch(self) -> Sequence[Queued]:
        """What it sends next."""
        return self.replica.take(self.replica.outbox.end(), BATCH, BATCH_BYTES)

    def push_body(self, batch: Sequence[Queued]) -> PushBody:
        """A push as the server reads it."""
        head = f'{{"clientId":{json_text(self.name)},"cursor":"{self.replica.progress.cursor}","deltas":['
        return parse_push(head.encode() + b",".join(one.body for one in batch) + b"]}", DeltaPolicy())

    def pushed(self, batch: Sequence[Queued], body: bytes) -> None:
        """The answer to a push has come."""
        self.replica.acknowledge(batch, answers.receipt(facts_of(body), len(batch)))

    def apply(self, since: int, body: bytes) -> bool:
        """A page has come; whether it could be taken in."""
        return self.replica.apply(answers.page(facts_of(body), since)) is not None

    def take_checkpoint(self, lines: Sequence[bytes]) -> None:
        """A checkpoint has come, as far as it came."""
        number = self.replica.begin_checkpoint()
        for line in lines:
            page = answers.piece(facts_of(line))
            assert self.replica.take_rows(number, page, is_told=False) is not None
            if not page.has_more:
                ended = self.replica.end_checkpoint(number, page, is_told=False)
                assert ended is not None
                assert ended.is_done
