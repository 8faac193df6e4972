"""Deltas in the registry of surfaces."""

from __future__ import annotations

from semel.server.auth.principals import ScopeClaim
from semel.server.settings import ServerSettings, settings_of
from semel.server.surface import Surface
from semel.surfaces.deltas.access import SURFACE
from semel.surfaces.deltas.check import CHECKS
from semel.surfaces.deltas.find import find
from semel.surfaces.deltas.http import DeltasHttp
from semel.surfaces.deltas.operations import OPERATIONS
from semel.surfaces.deltas.outlook import outlook
from semel.surfaces.deltas.settings import DeltasSettings
from semel.surfaces.deltas.tables import DELTA_ID, DELTA_LEGACY_ID, TABLES
from semel.surfaces.deltas.traces import ROUTE_WORDS, verdict_of
from semel.surfaces.deltas.wire.urls import PREFIXES, ROOTS


def _has_credentials(settings: ServerSettings) -> bool:
    return bool(settings_of(settings, DeltasSettings).deltas_jwt_secret)


ROW = Surface(
    name=SURFACE,
    about="Content-addressed row changes, last writer wins",
    paths=ROOTS,
    prefixes=PREFIXES,
    tables=TABLES,
    settings=DeltasSettings,
    run=DeltasHttp,
    operations=OPERATIONS,
    outlook=outlook,
    has_credentials=_has_credentials,
    scope_claims=(ScopeClaim("gw", may_be_one=True),),
    store_checks=CHECKS,
    receipts=(
        DELTA_ID,
        DELTA_LEGACY_ID,
    ),
    route_words=ROUTE_WORDS,
    find=find,
    verdict_of=verdict_of,
)
