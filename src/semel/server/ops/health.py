"""Health checks: liveness, and readiness to accept a write, without reading data."""

from __future__ import annotations

from semel import __version__
from semel.server.context import Context


def liveness(context: Context) -> dict[str, str]:
    """Liveness: the server answers; faults outside the commit path are reported."""
    facts = {"status": "ok", "version": __version__}
    if context.audit.is_broken:
        facts["audit"] = "broken"
    return facts


def readiness(context: Context) -> str:
    """`ok` means that a write sent now would be accepted."""
    if context.is_stopping or any(one.engine.failure is not None for one in context.all):
        return "stopping"
    return "store away" if any(one.engine.is_away for one in context.all) else "ok"


def readiness_facts(context: Context) -> dict[str, str]:
    """Readiness as reported by the server."""
    state = readiness(context)
    return {"status": "ready"} if state == "ok" else {"status": "not_ready", "reason": state}
