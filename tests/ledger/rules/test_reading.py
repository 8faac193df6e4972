"""Many reads at once: what does not fit into one answer is refused before a single large value is looked up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.store.protocol import AnyTable, Range, Row, Snapshot
from semel.store.table import Key
from semel.surfaces.ledger import reading
from semel.surfaces.ledger.limits import MAX_ANSWER_BYTES
from semel.surfaces.ledger.model import SetEntity
from semel.surfaces.ledger.tables import INLINE_BYTES, LEDGER_ENTITY, LEDGER_VALUE
from tests.ledger.rules.rig import OWN, LedgerDesk

MIB = 1024 * 1024


class Watched:
    """A snapshot that counts the bytes it hands out, by table."""

    def __init__(self, inside: Snapshot, read: Counter[AnyTable]) -> None:
        self._inside = inside
        self._read = read

    def get(self, table: AnyTable, key: Key) -> Row | None:
        row: Row | None = self._inside.get(table, key)
        self._count(table, [] if row is None else [row])
        return row

    def find(self, table: AnyTable, keys: Sequence[Key]) -> Mapping[Key, Row]:
        found: Mapping[Key, Row] = self._inside.find(table, keys)
        self._count(table, list(found.values()))
        return found

    def range(self, wanted: Range) -> Sequence[Row]:
        rows = self._inside.range(wanted)
        self._count(wanted.table, rows)
        return rows

    def _count(self, table: AnyTable, rows: Sequence[Row]) -> None:
        self._read[table] += sum(len(value) for row in rows for value in row if isinstance(value, bytes))


def read(desk: LedgerDesk, keys: list[bytes], counted: Counter[AnyTable]) -> Any:
    def look(through: Reading) -> Any:
        return reading.read_entities(through, OWN, keys)

    return desk.look(look, lambda snapshot: Watched(snapshot, counted))


@pytest.mark.parametrize("keys", [[b"a", b"b", b"c", b"d"], [b"a"] * 4, [b"a"] * 1_000], ids=["four", "same", "often"])
def test_what_does_not_fit_is_not_looked_up(keys: list[bytes]) -> None:
    desk = LedgerDesk()
    desk.commit(OWN, *[SetEntity(key, bytes(MIB)) for key in (b"a", b"b", b"c", b"d")])
    counted: Counter[AnyTable] = Counter()
    with pytest.raises(Refused, match=str(MAX_ANSWER_BYTES)) as caught:
        read(desk, keys, counted)
    assert caught.value.refusal.code == "ledger:invalid_argument"
    assert counted[LEDGER_VALUE] == 0
    assert counted[LEDGER_ENTITY] < INLINE_BYTES


def test_what_fits_is_looked_up_once() -> None:
    desk = LedgerDesk()
    desk.commit(OWN, SetEntity(b"a", bytes(MIB)), SetEntity(b"b", b"small"))
    counted: Counter[AnyTable] = Counter()
    found, height = read(desk, [b"a", b"b", b"a", b"missing"], counted)
    state = desk.states[OWN][1]
    assert (found, height) == ([state[b"a"], state[b"b"], state[b"a"], None], 1)
    assert counted[LEDGER_VALUE] == MIB + len(b"a")


def test_an_expired_entity_takes_no_room() -> None:
    desk = LedgerDesk()
    desk.commit(OWN, *[SetEntity(b"%d" % number, bytes(MIB), expires_at=1) for number in range(5)])
    counted: Counter[AnyTable] = Counter()
    found, _ = read(desk, [b"%d" % number for number in range(5)], counted)
    assert found == [None] * 5
    assert counted[LEDGER_VALUE] == 0
