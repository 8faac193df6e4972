"""Streams in the registry of surfaces."""

from __future__ import annotations

from collections.abc import Mapping

from semel.server.settings import ServerSettings, settings_of
from semel.server.surface import Surface
from semel.store.protocol import AnyTable
from semel.surfaces.streams.check import CHECKS
from semel.surfaces.streams.find import find
from semel.surfaces.streams.http import LISTS, PREFIXES, StreamsHttp
from semel.surfaces.streams.lists import SURFACE
from semel.surfaces.streams.operations import OPERATIONS
from semel.surfaces.streams.outlook import outlook
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.tables import RECEIPT, TABLES
from semel.surfaces.streams.traces import ROUTE_WORDS, verdict_of


def _windows(settings: ServerSettings) -> Mapping[AnyTable, int]:
    return {RECEIPT: settings_of(settings, StreamsSettings).streams_idempotency_ttl_ms}


ROW = Surface(
    name=SURFACE,
    about="Durable Streams over HTTP, with idempotency keys and idempotent producers",
    paths=LISTS,
    prefixes=PREFIXES,
    tables=TABLES,
    settings=StreamsSettings,
    run=StreamsHttp,
    operations=OPERATIONS,
    outlook=outlook,
    windows=_windows,
    store_checks=CHECKS,
    receipts=(RECEIPT,),
    route_words=ROUTE_WORDS,
    find=find,
    verdict_of=verdict_of,
)
