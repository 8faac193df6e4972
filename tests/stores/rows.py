"""The rows of a store that outlives its process, in a form in which two stores can be compared."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from semel.store.open import open_read_only
from semel.store.table import parts_of
from semel.surfaces.schema import MIGRATIONS, TABLES

RANDOM = {
    "*": {"checksum", "at_nanos", "created_nanos", "secret"},
    "event": {"origin"},
    "job": {"report"},
    "ledger_term": {"era"},
    "ledger_place": {"tip_hash"},
    "ledger_block": {"previous_hash", "tx_root", "id"},
    "delta_replica": {"seen", "life", "aliases"},
}
"""What a server makes up, what has an instant hashed into it, and what is written softly: not compared, by table."""
_NUMBERS = (
    (1_700_000_000, 2_200_000_000, "SECOND"),
    (1_700_000_000_000, 2_200_000_000_000, "MS"),
    (10**15, 10**16, "SLUG"),
    (10**17, 2 * 10**17, "HLC"),
)
_ID = re.compile(rb"\x01[\x8c-\xff].{14}", re.DOTALL)
"""16 bytes that begin with the milliseconds of a time from 2023 to 2039."""
_TEXTS = (
    (re.compile(r"\b1\d{17}\b"), "HLC"),
    (re.compile(r"\b[12]\d{12}\b"), "MS"),
    (re.compile(r"\b[12]\d{9}\b"), "SECOND"),
    (re.compile(r"\b01[0-9a-f]{30}\b"), "ID"),
)
Row = tuple[tuple[str, Any], ...]
"""Columns with their names."""
Rows = Mapping[str, Counter[Row]]
PAGE_ROWS, PAGE_BYTES = 1_000, 4 * 1024 * 1024


def rows_of(url: str) -> Rows:
    """How often each row is there, by table and generation, beside the servers that use the store."""
    found = {}
    with open_read_only(url, TABLES, MIGRATIONS, lambda: time.time_ns() // 1_000_000) as snapshot:
        for table, age in parts_of(TABLES):
            left_out = RANDOM["*"] | RANDOM.get(table.name, set())
            rows: Counter[Row] = Counter()
            behind = None
            while page := snapshot.page(table, age, behind, PAGE_ROWS, PAGE_BYTES):
                behind = table.key_of(page[-1])
                rows.update(_common(row, left_out) for row in page)
            found[f"{table.name} {age}"] = rows
    return found


def _common(row: Any, left_out: set[str]) -> Row:
    """What a row is in every store."""
    return tuple((name, _mapped(value)) for name, value in row._asdict().items() if name not in left_out)


def _mapped(value: Any) -> Any:
    if isinstance(value, int):
        return next((word for first, last, word in _NUMBERS if first <= value < last), value)
    if isinstance(value, bytes):
        text = _ID.sub(b"ID", value).decode("latin-1")
        for pattern, word in _TEXTS:
            text = pattern.sub(word, text)
        return text
    return value
