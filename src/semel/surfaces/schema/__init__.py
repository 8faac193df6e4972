"""Every table of every surface, and the migrations from an empty store to them."""

from __future__ import annotations

from semel.engine.generations import GENERATION
from semel.store.protocol import AnyTable
from semel.surfaces.deltas.migrations import DELTA_MIGRATION, DELTA_RETENTION_MIGRATION
from semel.surfaces.deltas.tables import TABLES as DELTAS_TABLES
from semel.surfaces.epoch import TABLES as EPOCH_TABLES
from semel.surfaces.events.tables import EVENT_MIGRATION
from semel.surfaces.events.tables import TABLES as EVENTS_TABLES
from semel.surfaces.jobs.migrations import (
    JOB_INDEXES_MIGRATION,
    JOB_LISTS_MIGRATION,
    JOB_MIGRATION,
    JOB_OFFERS_MIGRATION,
)
from semel.surfaces.jobs.tables import TABLES as JOBS_TABLES
from semel.surfaces.ledger.migrations import LEDGER_MIGRATION, LEDGER_ROOTS_MIGRATION, LEDGER_SUBJECTS_MIGRATION
from semel.surfaces.ledger.tables import TABLES as LEDGER_TABLES
from semel.surfaces.schema.epoch import EPOCHS
from semel.surfaces.streams.tables import STREAM_MIGRATION
from semel.surfaces.streams.tables import TABLES as STREAMS_TABLES

__all__ = ["MIGRATIONS", "TABLES"]

TABLES: tuple[AnyTable, ...] = (
    GENERATION,
    *STREAMS_TABLES,
    *EVENTS_TABLES,
    *JOBS_TABLES,
    *LEDGER_TABLES,
    *DELTAS_TABLES,
    *EPOCH_TABLES,
)

MIGRATIONS = (
    STREAM_MIGRATION,
    EVENT_MIGRATION,
    JOB_MIGRATION,
    LEDGER_MIGRATION,
    DELTA_MIGRATION,
    JOB_INDEXES_MIGRATION,
    LEDGER_ROOTS_MIGRATION,
    EPOCHS,
    JOB_OFFERS_MIGRATION,
    LEDGER_SUBJECTS_MIGRATION,
    DELTA_RETENTION_MIGRATION,
    JOB_LISTS_MIGRATION,
)
