"""Keys and values in the registry of surfaces."""

from __future__ import annotations

from collections.abc import Mapping

from semel.surfaces.kv.http import PREFIX, SURFACE, KvHttp
from semel.surfaces.kv.operations import OPERATIONS
from semel.surfaces.kv.settings import KvSettings
from semel.surfaces.kv.tables import KV_RECEIPT, TABLES

from semel.server.settings import ServerSettings, settings_of
from semel.server.surface import Surface
from semel.store.protocol import AnyTable


def _windows(settings: ServerSettings) -> Mapping[AnyTable, int]:
    return {KV_RECEIPT: settings_of(settings, KvSettings).kv_idempotency_ttl_ms}


ROW = Surface(
    name=SURFACE,
    about="Keys and values with conditional, idempotent writes",
    paths=(),
    prefixes=(PREFIX,),
    tables=TABLES,
    settings=KvSettings,
    run=KvHttp,
    operations=OPERATIONS,
    windows=_windows,
)
