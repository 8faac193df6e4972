"""`GET /v1/live`: what the server does right now, in about a thousand bytes that cost no read of the store.

All numbers are kept in memory by the parts that count them. Those since the start only grow until the process ends:
a client that asks twice takes the difference. The console asks every half second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel import __version__
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.server.ops.health import readiness
from semel.server.ops.metric_table import PlainHistogram


def live_facts(context: Context, started_ms: int) -> dict[str, Any]:
    """The numbers of one namespace; `started_ms` is the start of the process, in milliseconds since 1970."""
    metrics, engine = context.metrics, context.engine
    return {
        "now_ms": context.world.wall_ms(),
        "started_ms": started_ms,
        "version": __version__,
        "namespace": context.namespace,
        "ready": readiness(context),
        "writes": {one.surface: {kind.value: n for kind, n in one.verdicts.items()} for one in metrics.surfaces},
        "doubles_prevented": sum(one.replays for one in metrics.surfaces),
        "commits": dict(metrics.commits),
        "commit_seconds": _histogram(metrics.commit_seconds),
        "queue": {
            "writes": engine.waiting_writes,
            "bytes": engine.waiting_bytes,
            "oldest_seconds": round(engine.oldest_write_seconds, 4),
        },
        "live_readers": len(engine.signals),
        "connections": _sum(metrics.connections),
    }


def caller_facts(context: Context, principal: Principal) -> dict[str, Any]:
    """Who the caller is to the server, so that a page offers only what the caller may do."""
    known = context.principals.are_known
    return {
        "name": principal.name,
        "actor": principal.actor if known else "client:anonymous",
        "roles": sorted(role.value for role in Role if principal.has(role)),
        "has_scopes": principal.scopes is not None,
        "needs_token": known,
        "expires_ms": principal.expires_at_ms,
        "namespace": context.namespace,
        "version": __version__,
    }


def _histogram(one: PlainHistogram) -> dict[str, Any]:
    """The bounds in seconds, and the number of values in each bucket, of which there is one more."""
    return {"bounds": list(one.bounds), "counts": list(one.counts), "sum": round(one.sum, 6)}


def _sum(counts: list[Callable[[], Any]]) -> int:
    return sum(count for of in counts for count in of().values())
