"""The express decision beside the rules: the same requests give the same answers and the same rows.

Two stores run the same batches. One decides plain appends by `decide_plain`, the other every write by the rules, in the
order in which the first one has decided. `python -m tests.streams.rules.differential --cases 1000000` runs as many
appends as you like.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from semel.engine.batch import run, steps_of
from semel.engine.contract import DecisionResult, Order, Stage, View, Write
from semel.engine.group_commit import QueuedWrite, drive
from semel.kernel.clock import Now
from semel.kernel.verdict import Window
from semel.store.protocol import AnyTable, Lock
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, EpochRow
from semel.surfaces.streams.commands import Append, Content, Create, Delete, ProducerClaim
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.rules.plain_append import PlainAppend, is_plain_append
from semel.surfaces.streams.tables import TABLES
from tests.engine.toy import ToyWorld
from tests.harness.beside import Side, compare_steps, main

KEEP_MS = 5_000
SCOPES = (b"a", b"b", b"c")
KEYS = tuple(b"k%d" % number for number in range(12))
TYPES = (b"application/json", b"text/plain", b"Application/JSON; charset=utf-8")
ALL_TABLES: tuple[AnyTable, ...] = (*TABLES, EPOCH)


class RaiseEpoch(NamedTuple):
    """Begin another epoch, as a restore does."""

    number: int


class EpochContract:
    """Writes the row of the epoch."""

    name = "epoch"

    def locks(self, command: RaiseEpoch) -> Sequence[Lock]:
        return (Lock(b"epoch"),)

    def needs(self, command: RaiseEpoch) -> Iterator[Stage]:
        yield Stage(keys=[(EPOCH, EPOCH_KEY)])

    def order(self, command: RaiseEpoch) -> Order | None:
        return None

    def decide(self, view: View, command: RaiseEpoch, now: Now) -> DecisionResult:
        view.put(EPOCH, EpochRow(EPOCH_KEY[0], command.number, b""))
        return DecisionResult(None)


class Comparison:
    """Runs batches on both sides and compares them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._world = ToyWorld()
        self._streams = Streams(Window(KEEP_MS))
        self._fast, self._full = Side(ALL_TABLES, self._world), Side(ALL_TABLES, self._world)
        self._epoch = 0
        self._lives = 0
        self.appends = self.express = 0
        self._is_odd = False
        """Whether the present batch has appends that are not plain."""

    def step(self) -> None:
        """One batch."""
        chance = self._chance
        if chance.random() < 0.3:
            self._world.pass_ms(chance.choice((1, 10, 1_000, 1_000, KEEP_MS)))
        writes: list[QueuedWrite] = []
        if chance.random() < 0.02:
            self._epoch += 1
            writes.append(QueuedWrite(Write(EpochContract(), RaiseEpoch(self._epoch))))  # type: ignore[arg-type]
            self._compare(writes, [])
            writes = []
        self._is_odd = chance.random() < 0.2
        for _ in range(chance.choice((0, 0, 0, 0, 1, 3))):
            writes.append(QueuedWrite(Write(self._streams, self._other())))
        plain, held = [], {lock.name for one in writes for lock in one.locks}
        for _ in range(chance.randrange(1, 24)):
            command = self._append()
            self.appends += 1
            lock = b"stream:" + command.scope
            if is_plain_append(command) and lock not in held:
                assert command.content_type is not None
                plain.append(
                    PlainAppend(
                        self._streams,
                        lock,
                        command.scope,
                        command.key,
                        command.fingerprint,
                        command.content_type,
                        command.content,
                    )
                )
            else:
                writes.append(QueuedWrite(Write(self._streams, command)))
        held = {lock.name for one in writes for lock in one.locks}
        writes += [QueuedWrite(one.full()) for one in plain if one.lock in held]
        self._compare(writes, [one for one in plain if one.lock not in held])

    def _compare(self, writes: list[QueuedWrite], plain: list[PlainAppend]) -> None:
        result = drive(steps_of(self._fast.around, writes, plain=plain))
        assert not result.failed
        self.express += len(result.plain)
        fast = [outcome.answer for _, outcome in result.decided] + [answer for _, answer in result.plain]
        order = [one.write for one, _ in result.decided] + [one.full() for one, _ in result.plain]
        if result.left:
            later = run(self._fast.around, [QueuedWrite(one.write) for one in result.left])
            assert not later.failed
            fast += [outcome.answer for _, outcome in later.decided]
            order += [one.write for one, _ in later.decided]
        full = []
        for write in order:
            alone = run(self._full.around, [QueuedWrite(write)])
            assert not alone.failed
            full += [outcome.answer for _, outcome in alone.decided]
        assert fast == full
        assert self._fast.rows() == self._full.rows()

    def _append(self) -> Append:
        chance = self._chance
        data = chance.choice((b'{"a":1}', b'{"b":22}', b"x"))
        key = chance.randbytes(8) if chance.random() < 0.6 else chance.choice((None, None, *KEYS))
        is_odd = self._is_odd and chance.random() < 0.3
        claim = ProducerClaim(b"p", b"p", 0, chance.randrange(3)) if is_odd and chance.random() < 0.3 else None
        return Append(
            scope=chance.choice(SCOPES),
            key=key,
            fingerprint=b"" if key is None else data,
            content_type=chance.choice(TYPES) if is_odd else TYPES[0],
            content=Content(data if not is_odd or chance.random() < 0.8 else b"", 1),
            closes=is_odd and chance.random() < 0.2,
            seq=b"%d" % chance.randrange(9) if is_odd and chance.random() < 0.3 else None,
            producer=claim,
            flaw=None,
            if_match=b'"x"' if is_odd and chance.random() < 0.2 else None,
        )

    def _other(self) -> Create | Delete:
        chance = self._chance
        scope = chance.choice(SCOPES)
        if chance.random() < 0.3:
            return Delete(scope)
        self._lives += 1
        life = b"%08d" % self._lives
        ttl = chance.choice((None, None, None, 3))
        end = None if ttl is not None or chance.random() < 0.7 else self._world.wall_ms() + 2_000
        return Create(scope, scope, life, TYPES[0], ttl, end, None, False, Content(b"", 0))


if __name__ == "__main__":
    main(__doc__, compare_steps(Comparison, 60, "appends"))
