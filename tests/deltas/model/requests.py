"""Random deltas of few clients on few rows, so that everything meets: ties, losers, deletes, late and early ones."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from semel.kernel.hashes import columns_text, delta_id, json_text
from semel.kernel.hlc import join
from semel.surfaces.deltas.model import Delta, DeltaColumn, DeltaOp
from semel.surfaces.deltas.wire.plain_delta import plain_delta

TABLES = ("todos", "notes")
ROWS = tuple(map(json_text, ("r1", "r2", 'q"', "行/\ud800")))
COLUMNS = ("a", "b", "c", "d")
CLIENTS = tuple(map(json_text, ("ann", "bob", "b\ue000", "b\U0001f389", 'b"', "b\n", "b~", "\udc00", "b\\")))
"""Their order by code units is neither that of code points nor that of their texts."""
NEIGHBOURS = tuple(map(json_text, ("b\ue000", "b\U0001f389", "b~")))
"""The first two stand the other way round by code points."""
VALUES = (None, True, 0, 1, -1.5, "", "x", "\ud800", [1, {"k": None}], {"z": 1, "a": "é"})
OPS = (DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.UPDATE, DeltaOp.DELETE)


def make_column(name: str, *value: object, **others: object) -> DeltaColumn:
    """A column as a client would send it; without a value, one whose value was left out."""
    sent = {"column": name, **others} | ({"value": value[0]} if value else {})
    text = json_text(value[0] if value else None)  # type: ignore[arg-type]
    return DeltaColumn(name, text, json_text(sent), has_value=bool(value))  # type: ignore[arg-type]


def make_delta(op: DeltaOp, table: str, row: str, client: str, hlc: int, columns: Sequence[DeltaColumn] = ()) -> Delta:
    """A delta with the id that it must have, as the parser makes it: a plain one has its columns as parsed."""
    text = columns_text([column.text or f'{{"column":"{column.name}","value":{column.value}}}' for column in columns])
    name = delta_id(client, text, hlc, row, table)
    sent = {"op": op.name, "table": table, "rowId": json.loads(row), "clientId": json.loads(client), "hlc": str(hlc)}
    plain = plain_delta(sent | {"columns": json.loads(text), "deltaId": name.hex()}, None)
    return plain or Delta(op, table, row, client, tuple(columns), text.encode(), hlc, name)


class Drawing:
    """Draws deltas."""

    def __init__(self, *, has_forged_ids: bool) -> None:
        self._has_forged_ids = has_forged_ids
        self.known: list[Delta] = []
        """Everything that was ever drawn."""

    def delta(self, chance: random.Random, client: str, physical_ms: int) -> Delta:
        """One that is new, or not, or nearly."""
        draw = chance.random()
        if self.known and draw < 0.15:
            return chance.choice(self.known)
        if self.known and draw < 0.2:  # the same identity, told as another operation
            return chance.choice(self.known)._replace(op=chance.choice(OPS))
        delta = self._new(chance, client, physical_ms)
        if self._has_forged_ids and self.known and chance.random() < 0.2:
            delta = delta._replace(id=chance.choice(self.known).id)
        self.known.append(delta)
        return delta

    def _new(self, chance: random.Random, client: str, physical_ms: int) -> Delta:
        op = chance.choice(OPS)
        count = chance.choice((0, 0, 0, 1) if op is DeltaOp.DELETE else (0, 1, 1, 2, 3))
        columns = [self._column(chance, name) for name in chance.sample(COLUMNS, count)]
        return make_delta(
            op, chance.choice(TABLES), chance.choice(ROWS), client, self._hlc(chance, physical_ms), columns
        )

    @staticmethod
    def _column(chance: random.Random, name: str) -> DeltaColumn:
        draw = chance.random()
        if draw < 0.08:
            return make_column(name)
        if draw < 0.14:
            return make_column(name, chance.choice(VALUES), type="text")
        return make_column(name, chance.choice(VALUES))

    def _hlc(self, chance: random.Random, physical_ms: int) -> int:
        """Now, long ago, exactly as another one, or ahead: as far as may be, and sometimes a millisecond more."""
        draw = chance.random()
        if draw < 0.25 and self.known:
            return max(0, chance.choice(self.known).hlc + chance.choice((0, 0, 0, 0, 1, -1)))
        if draw < 0.3:
            return chance.choice((0, 1, 2, 3))
        if draw < 0.35:
            return join(physical_ms + chance.choice((4_999, 5_000)), chance.choice((0, 65_535)))
        if draw < 0.365:
            return join(physical_ms + chance.choice((5_001, 100_000)), 0)
        return join(physical_ms - chance.choice((0, 0, 1, chance.randrange(10_000))), chance.randrange(3))
