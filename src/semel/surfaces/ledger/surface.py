"""Ledger in the registry of surfaces."""

from __future__ import annotations

from semel.contracts.ledger.tables import TABLES
from semel.contracts.ledger.wire.paths import PREFIX
from semel.server.ledger.access import SURFACE
from semel.server.ledger.host import LedgerHost
from semel.server.principals import ScopeClaim
from semel.server.surface import Surface
from semel.surfaces.ledger.settings import LedgerSettings

LEDGER = Surface(
    name=SURFACE,
    about="Sequenced transactions with blocks and proofs, over HTTP and gRPC",
    paths=(PREFIX[:-1],),
    prefixes=(PREFIX,),
    tables=TABLES,
    settings=LedgerSettings,
    run=LedgerHost,
    scope_claims=(ScopeClaim("org", may_be_one=True),),
)
