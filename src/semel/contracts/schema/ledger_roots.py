"""Migration 7: the roots of a ledger's buckets at some heights, for proofs of the past; never changed.

Data from before has none of these rows for its old heights. They are not made up for: a proof there looks up more.
"""

from __future__ import annotations

from semel.store.migrations import CreateTable, Migration
from semel.store.table import Column, Kind, Shape

LEDGER_ROOTS = Migration(
    7,
    "roots of ledger buckets",
    (
        CreateTable(
            Shape(
                "ledger_roots",
                (
                    Column("org", Kind.I64),
                    Column("vault", Kind.I64),
                    Column("height", Kind.I64),
                    Column("roots", Kind.BYTES),
                    Column("heights", Kind.BYTES),
                ),
                key=3,
                bulky=True,
            )
        ),
    ),
)
