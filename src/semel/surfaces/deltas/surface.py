"""Deltas in the registry of surfaces."""

from __future__ import annotations

from semel.contracts.deltas.tables import TABLES
from semel.contracts.deltas.wire.paths import PREFIXES, ROOTS
from semel.server.deltas.host import DeltasHost
from semel.server.deltas.tokens import SURFACE
from semel.server.principals import ScopeClaim
from semel.server.settings import ServerSettings, settings_of
from semel.server.surface import Surface
from semel.surfaces.deltas.settings import DeltasSettings


def _has_credentials(settings: ServerSettings) -> bool:
    return bool(settings_of(settings, DeltasSettings).deltas_jwt_secret)


DELTAS = Surface(
    name=SURFACE,
    about="Content-addressed row changes, last writer wins",
    paths=ROOTS,
    prefixes=PREFIXES,
    tables=TABLES,
    settings=DeltasSettings,
    run=DeltasHost,
    has_credentials=_has_credentials,
    scope_claims=(ScopeClaim("gw", may_be_one=True),),
)
