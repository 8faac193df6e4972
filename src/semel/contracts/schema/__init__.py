"""Every table of every surface, and the migrations from an empty store to them."""

from __future__ import annotations

from semel.contracts.deltas.tables import TABLES as DELTAS_TABLES
from semel.contracts.epoch import TABLES as EPOCH_TABLES
from semel.contracts.events.tables import TABLES as EVENTS_TABLES
from semel.contracts.jobs.tables import TABLES as JOBS_TABLES
from semel.contracts.ledger.tables import TABLES as LEDGER_TABLES
from semel.contracts.schema.deltas import BOUNDED_DELTAS, DELTAS
from semel.contracts.schema.epoch import EPOCHS
from semel.contracts.schema.events import EVENTS
from semel.contracts.schema.jobs import JOBS, LIGHTER_JOBS
from semel.contracts.schema.jobs_lists import JOBS_LISTS
from semel.contracts.schema.jobs_offers import JOBS_OFFERS
from semel.contracts.schema.ledger import LEDGER
from semel.contracts.schema.ledger_roots import LEDGER_ROOTS
from semel.contracts.schema.ledger_subjects import LEDGER_SUBJECTS
from semel.contracts.schema.streams import STREAMS
from semel.contracts.streams.tables import TABLES as STREAMS_TABLES
from semel.engine.generations import GENERATION
from semel.store.protocol import AnyTable

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
    STREAMS,
    EVENTS,
    JOBS,
    LEDGER,
    DELTAS,
    LIGHTER_JOBS,
    LEDGER_ROOTS,
    EPOCHS,
    JOBS_OFFERS,
    LEDGER_SUBJECTS,
    BOUNDED_DELTAS,
    JOBS_LISTS,
)
