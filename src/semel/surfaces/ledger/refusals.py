"""Refusals of the ledger for errors that are not its own: of the engine, of the server, and internal faults."""

from __future__ import annotations

from semel.engine.back_pressure import InFlightError
from semel.engine.contract import EngineError, FaultError
from semel.kernel.errors import REGISTRY, Refusal
from semel.server.quotas.accounts import IN_FLIGHT

RETRY_MS = 1_000
_AGAIN = "Send it again unchanged, with the same key and the same sequence."


def engine_refusal(error: EngineError) -> Refusal:
    """The refusal for an engine error: the write was not done, or its outcome is unknown."""
    if isinstance(error, FaultError):
        return internal_refusal(error.error_id)
    if isinstance(error, InFlightError):
        facts = {"quota": IN_FLIGHT}
        return Refusal("ledger:resource_exhausted", f"{error} {_AGAIN}", facts, retry_after_ms=RETRY_MS)
    return Refusal("ledger:unavailable", f"{error} {_AGAIN}", retry_after_ms=RETRY_MS)


def internal_refusal(error_id: str) -> Refusal:
    """The refusal for an internal fault; the log has the details under the id."""
    return Refusal(
        "ledger:internal", f"Something went wrong here. {_AGAIN} Error id {error_id}.", {"error_id": error_id}
    )


def own_refusal(refusal: Refusal) -> Refusal:
    """A refusal of the server with the code of the ledger: a credential, an origin, too many uploads."""
    if refusal.code.startswith("ledger:"):
        return refusal
    if refusal.status == 401:
        return refusal._replace(code="ledger:unauthenticated")
    if refusal.code == "QUOTA_EXCEEDED":
        return refusal._replace(code="ledger:resource_exhausted")
    named = f"ledger:{refusal.code.lower()}"
    if named in REGISTRY:
        return refusal._replace(code=named)
    return refusal._replace(code="ledger:unavailable", retry_after_ms=RETRY_MS)
