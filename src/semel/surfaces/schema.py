"""The schema of the store: the tables of the surfaces and of the server, and the migrations from an empty store.

Columns are declared once, in `tables.py` of a surface. No version is released yet, so one migration, the baseline,
creates the tables as they are declared, and a change of a declaration gives it the next number: data of another form
is refused and left as it is. The first release freezes the baseline. From then on a migration lists its own columns,
and each changed declaration needs a new migration.
"""

from __future__ import annotations

from importlib import import_module

from semel.engine.generations import GENERATION
from semel.server.auth.token_table import TABLES as TOKEN_TABLES
from semel.server.writes.retry_table import TABLES as RETRY_TABLES
from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import AnyTable
from semel.surfaces.epoch import TABLES as EPOCH_TABLES
from semel.surfaces.registry import NAMES

TABLES: tuple[AnyTable, ...] = (
    GENERATION,
    *(table for name in NAMES for table in import_module(f"semel.surfaces.{name}.tables").TABLES),
    *EPOCH_TABLES,
    *TOKEN_TABLES,
    *RETRY_TABLES,
)

MIGRATIONS = (Migration(5, "baseline", tuple(CreateTable(table.shape) for table in TABLES)),)
