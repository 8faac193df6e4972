"""Events in the registry of surfaces."""

from __future__ import annotations

from semel.contracts.events.tables import TABLES
from semel.server.events.host import EventsHost
from semel.server.events.hub import SOCKET_PATH, SURFACE
from semel.server.events.validators import load_validator
from semel.server.principals import ScopeClaim
from semel.server.settings import ServerSettings, settings_of
from semel.server.surface import Surface
from semel.surfaces.events.settings import EventsSettings


def _check(settings: ServerSettings) -> None:
    load_validator(settings_of(settings, EventsSettings).events_validator)


EVENTS = Surface(
    name=SURFACE,
    about="Event sync over WebSocket in one global order",
    paths=(SOCKET_PATH,),
    prefixes=(),
    tables=TABLES,
    settings=EventsSettings,
    run=EventsHost,
    check=_check,
    scope_claims=(ScopeClaim("allowed_partitions"), ScopeClaim("allowed_partition_prefixes", is_prefix=True)),
    has_normalized_names=True,
)
