"""Error mapping of the ledger: failures of the engine and the store as refusals."""

from __future__ import annotations

from semel.contracts.ledger.commands import Refusal
from semel.engine.contract import EngineError, FaultError
from semel.kernel.errors import Problem

RETRY_MS = 1_000
_AGAIN = "Send it again unchanged, with the same key and the same sequence."


def engine_refusal(error: EngineError) -> Refusal:
    """The refusal for an engine error: the write was not done, or its outcome is unknown."""
    if isinstance(error, FaultError):
        return internal_refusal(error.error_id)
    return Refusal("unavailable", f"{error} {_AGAIN}", retry_after_ms=RETRY_MS)


def internal_refusal(error_id: str) -> Refusal:
    """The refusal for an internal fault; the log has the details under the id."""
    return Refusal("internal", f"Something went wrong here. {_AGAIN} Error id {error_id}.", {"error_id": error_id})


def server_refusal(problem: Problem) -> Refusal:
    """The refusal for a problem of the server itself, whatever the surface: a credential, or too many uploads."""
    if problem.kind.status == 401:
        return Refusal("unauthenticated", problem.detail)
    return Refusal("unavailable", problem.detail, retry_after_ms=RETRY_MS)
