"""`semel deltas`: show, follow and set up gateways from a terminal or a script."""

from __future__ import annotations

from semel.cli.lazy import LazyGroup

_HOMES = {
    "clients": "semel.cli.deltas.admin:clients",
    "flush": "semel.cli.deltas.admin:flush",
    "gateways": "semel.cli.deltas.admin:gateways",
    "pull": "semel.cli.deltas.admin:pull",
    "rules": "semel.cli.deltas.admin:rules",
    "schema": "semel.cli.deltas.admin:schema",
    "stats": "semel.cli.deltas.admin:stats",
}
deltas = LazyGroup(
    "deltas", help="Row changes (deltas) for replicas: merged by column, last writer wins.", homes=_HOMES
)
