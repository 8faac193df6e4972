"""Health checks: liveness, and readiness to accept a write, without reading data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel import __version__
from semel.server.context import Context
from semel.server.ops.health_watch import UnreadyReason


def liveness(context: Context) -> dict[str, str]:
    """Liveness: the server answers; faults outside the commit path are reported."""
    facts = {"status": "ok", "version": __version__}
    if context.audit.is_broken:
        facts["audit"] = "broken"
    return facts


def readiness(context: Context) -> str:
    """`ok` means that a write sent now would be accepted; otherwise the first reason."""
    reasons = unready_reasons(context)
    return reasons[0].reason if reasons else "ok"


def unready_reasons(context: Context) -> Sequence[UnreadyReason]:
    """Why a write should not be sent here now."""
    if context.is_stopping or any(one.engine.failure is not None for one in context.all):
        return [UnreadyReason("stopping", "the server is stopping", "Wait for its restart, or read its log.")]
    away = UnreadyReason("store away", "the store cannot be reached", "Look at the database and the network to it.")
    seen = dict.fromkeys(reason for one in context.all if one.health is not None for reason in one.health.reasons)
    return [away, *seen] if any(one.engine.is_away for one in context.all) else list(seen)


def readiness_facts(context: Context) -> dict[str, Any]:
    """Readiness as reported by the server."""
    reasons = unready_reasons(context)
    if not reasons:
        return {"status": "ready"}
    facts = [reason._asdict() for reason in reasons]
    return {"status": "not_ready", "reason": reasons[0].reason, "reasons": facts}
