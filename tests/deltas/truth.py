"""What the rows must be: all deltas applied one after the other in the order of their stamps, from nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.deltas.vectors import Message

Rows = dict[tuple[str, str], Message]
"""Each live row's columns; null is the same as absent."""


def order_of(delta: Mapping[str, str]) -> tuple[int, bytes, str]:
    """Time, then author by UTF-16 code units, then identity."""
    return int(delta["hlc"]), delta["clientId"].encode("utf-16-be", "surrogatepass"), delta["deltaId"]


def folded(deltas: Iterable[Message]) -> Rows:
    """The state of all rows after these deltas, however often each is among them and in whatever order."""
    rows: Rows = {}
    once = {delta["deltaId"]: delta for delta in reversed(list(deltas))}
    for delta in sorted(once.values(), key=order_of):
        key = (delta["table"], delta["rowId"])
        if delta["op"] == "DELETE":
            rows.pop(key, None)
        else:
            cells = {column["column"]: column.get("value") for column in delta["columns"]}
            rows[key] = rows.get(key, {}) | cells
    return {key: without_nulls(row) for key, row in rows.items()}


def without_nulls(row: Mapping[str, object]) -> Message:
    """A cleared column and one that never was look the same in a table."""
    return {name: cell for name, cell in row.items() if cell is not None}
