"""Streams in the registry of surfaces."""

from __future__ import annotations

from collections.abc import Mapping

from semel.contracts.streams.tables import RECEIPT, TABLES
from semel.server.settings import ServerSettings, settings_of
from semel.server.streams.host import LISTING, PREFIX, SURFACE, StreamsHost
from semel.server.surface import Surface
from semel.store.protocol import AnyTable
from semel.surfaces.streams.settings import StreamsSettings


def _windows(settings: ServerSettings) -> Mapping[AnyTable, int]:
    return {RECEIPT: settings_of(settings, StreamsSettings).streams_idempotency_ttl_ms}


STREAMS = Surface(
    name=SURFACE,
    about="Durable Streams over HTTP, with idempotency keys and idempotent producers",
    paths=(LISTING,),
    prefixes=(PREFIX,),
    tables=TABLES,
    settings=StreamsSettings,
    run=StreamsHost,
    windows=_windows,
)
