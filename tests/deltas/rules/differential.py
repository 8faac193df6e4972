"""The quick paths of a push beside the full ones: the same bodies give the same answers, pages and rows.

Two stores get the same calls. One reads plain deltas by the quick reader and stores rows that one delta creates without
a state in memory; the other reads every delta by the full reader and folds every row. `python -m
tests.deltas.rules.differential --cases 1000000` runs as many deltas as you like.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from semel.engine.batch import run, store_soft
from semel.engine.contract import Write
from semel.engine.group_commit import QueuedWrite
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.kernel.hashes import delta_id, json_text
from semel.kernel.hlc import join
from semel.store.protocol import AnyTable
from semel.surfaces.deltas.commands import DeltaCommand, PushDeltas, SaveSyncRules, SaveTableSchema
from semel.surfaces.deltas.contract import DeltaContract
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.model import DeltaOp, DeltaReplica, PlainColumns
from semel.surfaces.deltas.reading import DeltaPage, PartialPage, pull
from semel.surfaces.deltas.rules import large_push, rows
from semel.surfaces.deltas.rules.large_push import in_parts
from semel.surfaces.deltas.rules.log import GatewayLog
from semel.surfaces.deltas.service import note_of
from semel.surfaces.deltas.tables import TABLES
from semel.surfaces.deltas.wire import push_body
from semel.surfaces.deltas.wire.plain_delta import plain_push
from semel.surfaces.deltas.wire.push_body import PushBody, parse_push
from semel.surfaces.epoch import EPOCH
from tests.engine.toy import ToyWorld
from tests.harness.beside import Side, main

GATEWAY = "g"
CLIENTS = ("ann", "bob", "b\ud800", "c\n\U0001f389")
NAMES = ("a", "b", "c", "d", "e")
TABLE_NAMES = ("todos", "todos", "notes")
PLAIN = (None, True, False, 0, 1, -7, 10**15 - 1, "", "x", "é行", 'q"\\', "tab\t\u2028", "a" * 300)
ODD: tuple[Any, ...] = (
    -0.0,
    1.5,
    1e21,
    10**15,
    2**53 + 1,
    10**25,
    "{",
    "[1]",
    "\ud800",
    [1, {"k": None}],
    {"z": 1, "a": "é"},
    {},
)
RULES = b'{"version":1,"buckets":[{"name":"all","tables":["todos"],"filters":[{"column":"a","op":"eq","value":"x"}]}]}'
DEEP: list[Any] = []
for _ in range(70):
    DEEP = [DEEP]
ALL_TABLES: tuple[AnyTable, ...] = (*TABLES, EPOCH)
Json = Any


class PushSide(Side):
    """One of the two stores."""

    def __init__(self, world: ToyWorld, policy: DeltaPolicy, *, is_quick: bool) -> None:
        super().__init__(ALL_TABLES, world)
        self._contract = DeltaContract(policy)
        self._policy = policy
        self._is_quick = is_quick
        self.created = 0
        """Rows that were stored without a state in memory."""

    @contextmanager
    def _path(self) -> Iterator[None]:
        original = GatewayLog.add_first

        def counted(log: GatewayLog, *arguments: Any) -> bytes:
            self.created += 1
            return original(log, *arguments)

        with ExitStack() as stack:
            stack.enter_context(patch.object(GatewayLog, "add_first", counted))
            if not self._is_quick:
                stack.enter_context(patch.object(push_body, "plain_push", lambda raw, author, most: None))
                stack.enter_context(patch.object(push_body, "plain_delta", lambda item, author: None))
                stack.enter_context(patch.object(rows, "creates_row", lambda delta: False))
            yield

    def parse(self, raw: bytes, author: str | None) -> PushBody | Refusal:
        """The push in a body."""
        with self._path():
            try:
                return parse_push(raw, self._policy, author)
            except Refused as refused:
                return refused.refusal

    def decide(self, command: DeltaCommand, *, is_large: bool = False) -> Any:
        """The answer to a command."""
        parts = partial(in_parts, command) if isinstance(command, PushDeltas) else None
        queued = [QueuedWrite(Write(self._contract, command, parts=parts, is_large=is_large))]
        answer = None
        with self._path():
            while queued:  # the first write to a gateway needs a further lock
                result = run(self.around, queued)
                assert not result.failed, "a decision failed"
                queued = result.deferred
                answer = result.decided[0][1].answer if result.decided else None
        return answer

    def pull(self, replica: DeltaReplica, since: int, limit: int) -> DeltaPage:
        """A page, and what has to be stored for it."""
        found: DeltaPage | PartialPage | None = None
        while not isinstance(found, DeltaPage):
            with self.store.read() as snapshot:
                reading = Reading(snapshot, self.soft, self.clock.now(snapshot.now_ms))
                found = pull(reading, replica, {}, since, limit, 9**9, found)
        page = found
        if page.must_note:
            return page._replace(cursor=self.decide(note_of(replica, page)).cursor)
        self.soft.touch(page.touches)
        store_soft(self.around)
        return page


class Comparison:
    """Makes the same calls on both sides and compares them."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self._world = ToyWorld()
        policy = DeltaPolicy(checks_ids=chance.random() < 0.9, max_deltas=chance.choice((9, 10_000)))
        self._quick, self._full = (PushSide(self._world, policy, is_quick=is_quick) for is_quick in (True, False))
        self._known: list[Json] = []
        self._cursors = {client: [0] for client in CLIENTS}
        self._rows = chance.choice((3, 60, 2_000))
        self.deltas = self.plain = self.refused = self.whole = 0

    def step(self) -> None:
        """One call."""
        draw = self._chance.random()
        if draw < 0.3:
            self._world.pass_ms(self._chance.choice((0, 1, 10, 10_000)))
        if draw < 0.02:
            self._both(SaveSyncRules(GATEWAY, self._chance.choice((RULES, b'{"version":1,"buckets":[]}'))))
        elif draw < 0.03:
            columns = tuple((name, "string") for name in NAMES[: self._chance.randrange(3, 6)])
            self._both(SaveTableSchema(GATEWAY, "notes", columns))
        elif draw < 0.25:
            self._pull()
        else:
            self._push()

    def close(self) -> None:
        """Compare all rows."""
        assert self._quick.rows() == self._full.rows()
        assert self._full.created == 0

    @property
    def created(self) -> int:
        """Rows that the quick path has created."""
        return self._quick.created

    def _both(self, command: DeltaCommand, *, is_large: bool = False) -> Any:
        answers = [side.decide(command, is_large=is_large) for side in (self._quick, self._full)]
        assert answers[0] == answers[1]
        return answers[0]

    def _pull(self) -> None:
        client = self._chance.choice(CLIENTS)
        replica = DeltaReplica(GATEWAY, json_text(client), "default")
        since, limit = self._chance.choice(self._cursors[client][-3:]), self._chance.choice((1, 3, 100))
        pages = [side.pull(replica, since, limit) for side in (self._quick, self._full)]
        assert pages[0] == pages[1]
        self._cursors[client] = [*self._cursors[client], pages[0].cursor or 0]

    def _push(self) -> None:
        chance = self._chance
        client = chance.choice(CLIENTS)
        items = [self._item(client) for _ in range(chance.choice((0, 1, 1, 2, 5, 12)))]
        body: Json = {"clientId": client, "deltas": items} | ({"cursor": "0"} if chance.random() < 0.2 else {})
        if chance.random() < 0.3:
            name = chance.choice(("lastSeenHlc", "cursor", "more", "clientId"))
            body[name] = chance.choice((None, "0", "7", "01", 7, "x" * 257, {"a": DEEP}))
        raw = json.dumps(body, ensure_ascii=chance.random() < 0.5 or client == "b\ud800").encode("utf-8", "replace")
        if chance.random() < 0.02:  # a member that is there twice
            raw = raw.replace(b"{", b'{"deltas":[],', 1)
        author = json_text(client) if chance.random() < 0.3 else None
        self.whole += plain_push(raw, author, 10_000) is not None
        quick, full = (side.parse(raw, author) for side in (self._quick, self._full))
        assert quick == full
        if isinstance(quick, Refusal) or isinstance(full, Refusal):
            self.refused += 1
            return
        self.deltas += len(items)
        self.plain += sum(type(delta.columns) is PlainColumns for delta in quick.deltas)
        replica = DeltaReplica(GATEWAY, quick.client, "default")
        is_large = chance.random() < 0.1
        answers = [
            side.decide(PushDeltas(replica, body.deltas, False, 0, body.cursor is not None), is_large=is_large)
            for side, body in ((self._quick, quick), (self._full, full))
        ]
        assert answers[0] == answers[1]
        if isinstance(answers[0], Refusal):
            self.refused += 1
        else:
            self._cursors[client] = [*self._cursors[client], answers[0].server_hlc]
            self._known += [item for item in items if chance.random() < 0.2]

    def _item(self, pusher: str) -> Json:
        """A delta: mostly plain, sometimes known, sometimes odd, rarely wrong."""
        chance = self._chance
        if self._known and chance.random() < 0.15:
            return chance.choice(self._known)
        client = pusher if chance.random() < 0.95 else chance.choice(CLIENTS)
        is_odd = chance.random() < 0.2
        count = chance.choice((0, 1, 2, 4))
        columns = [self._column(name, is_odd=is_odd) for name in chance.sample(NAMES, count)]
        row = f"r{chance.randrange(self._rows)}" if not is_odd else chance.choice(("r{", "行\ud800", "r1"))
        hlc = join(self._world.wall_ms() - chance.choice((0, 0, 1, 5_000)), chance.randrange(4))
        hlc = chance.choice((hlc, hlc, hlc, 0, 2**63)) if is_odd else hlc
        table = chance.choice(TABLE_NAMES)
        text: str | bytes = json_text(columns)
        if is_odd and chance.random() < 0.4:  # the hash of a text that is not canonical
            text = json.dumps(columns, separators=(",", ":")).encode()
        name = delta_id(json_text(client), text, hlc, json_text(row), table).hex()
        op = chance.choice((DeltaOp.INSERT, DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE)).name
        item: Json = {"op": op, "table": table, "rowId": row, "clientId": client, "columns": columns, "hlc": str(hlc)}
        item["deltaId"] = name
        if is_odd and chance.random() < 0.3:
            item["retries"] = DEEP if chance.random() < 0.5 else 1
        if chance.random() < 0.1:
            item["deltaType"] = chance.choice((op, op, op, "DELETE", None, 1, [op]))
            if chance.random() < 0.7:
                del item["op"]
        return self._broken(item) if chance.random() < 0.01 else item

    def _column(self, name: str, *, is_odd: bool) -> Json:
        chance = self._chance
        if not is_odd:
            name = name if chance.random() < 0.997 else "1a"
            return {"column": name, "value": chance.choice(PLAIN)}
        draw = chance.random()
        if draw < 0.05:
            return {"column": chance.choice(("1a", "a-b", "é", "a\n", "", "x" * 65)), "value": 1}
        if draw < 0.1:
            return {"column": name}
        if draw < 0.2:
            return {"column": name, "value": chance.choice(PLAIN), "type": "text"}
        if draw < 0.3:
            return {"value": chance.choice(PLAIN), "column": name}
        return {"column": name, "value": chance.choice(ODD)}

    def _broken(self, item: Json) -> Json:
        chance = self._chance
        name = chance.choice(list(item))
        value: Json = chance.choice(
            (None, 1, "", "x", [], {}, [[]], [{"column": "1a", "value": 1}], "0" * 64, "A" * 1_025)
        )
        return {**item, name: value} if chance.random() < 0.8 else chance.choice((None, 7, [], {}, "x"))


def compare(seed: int, steps: int) -> Comparison:
    """One run of calls, with parts of a large push that are small."""
    comparison = Comparison(seed)
    with patch.object(large_push, "PART_DELTAS", 3):
        for _ in range(steps):
            comparison.step()
    comparison.close()
    return comparison


def compare_pushes(seed: int, cases: int) -> Counter[str]:
    """One run, and how many deltas it had."""
    one = compare(seed, 200)
    return Counter(cases=one.deltas, plain=one.plain, created=one.created)


if __name__ == "__main__":
    main(__doc__, compare_pushes)
