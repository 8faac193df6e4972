"""Ledger in the registry of surfaces."""

from __future__ import annotations

from semel.server.auth.principals import ScopeClaim
from semel.server.surface import Surface
from semel.surfaces.ledger.access import SURFACE
from semel.surfaces.ledger.check import CHECKS
from semel.surfaces.ledger.find import find
from semel.surfaces.ledger.http import LedgerHttp
from semel.surfaces.ledger.operations import OPERATIONS
from semel.surfaces.ledger.outlook import outlook
from semel.surfaces.ledger.settings import LedgerSettings
from semel.surfaces.ledger.tables import LEDGER_KEY, TABLES
from semel.surfaces.ledger.traces import ROUTE_WORDS, verdict_of
from semel.surfaces.ledger.wire.urls import PREFIX

ROW = Surface(
    name=SURFACE,
    about="Sequenced transactions with blocks and proofs, over HTTP and gRPC",
    paths=(PREFIX[:-1],),
    prefixes=(PREFIX,),
    tables=TABLES,
    settings=LedgerSettings,
    run=LedgerHttp,
    operations=OPERATIONS,
    outlook=outlook,
    scope_claims=(ScopeClaim("org", may_be_one=True),),
    store_checks=CHECKS,
    receipts=(LEDGER_KEY,),
    route_words=ROUTE_WORDS,
    find=find,
    verdict_of=verdict_of,
)
