"""Events in the registry of surfaces."""

from __future__ import annotations

from semel.server.auth.principals import ScopeClaim
from semel.server.settings import ServerSettings, settings_of
from semel.server.surface import Surface
from semel.surfaces.events.check import CHECKS
from semel.surfaces.events.find import find
from semel.surfaces.events.http import EventsHttp
from semel.surfaces.events.operations import OPERATIONS
from semel.surfaces.events.outlook import outlook
from semel.surfaces.events.service import SOCKET_PATH, SURFACE, load_validator
from semel.surfaces.events.settings import EventsSettings
from semel.surfaces.events.tables import EVENT_ID, TABLES
from semel.surfaces.events.traces import ROUTE_WORDS, verdict_of


def _check(settings: ServerSettings) -> None:
    load_validator(settings_of(settings, EventsSettings).events_validator)


ROW = Surface(
    name=SURFACE,
    about="Event sync over WebSocket in one global order",
    paths=(SOCKET_PATH,),
    prefixes=(SOCKET_PATH + b"/",),
    tables=TABLES,
    settings=EventsSettings,
    run=EventsHttp,
    operations=OPERATIONS,
    outlook=outlook,
    check=_check,
    scope_claims=(ScopeClaim("allowed_partitions"), ScopeClaim("allowed_partition_prefixes", is_prefix=True)),
    has_normalized_names=True,
    store_checks=CHECKS,
    receipts=(EVENT_ID,),
    route_words=ROUTE_WORDS,
    find=find,
    verdict_of=verdict_of,
)
