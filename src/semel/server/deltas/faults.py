"""Error mapping of deltas: failures of the engine and the store as refusals."""

from __future__ import annotations

from semel.contracts.deltas.refusals import Refusal
from semel.engine.contract import EngineError, FaultError, OutcomeUnknownError
from semel.kernel.errors import Problem


def engine_refusal(error: EngineError) -> Refusal:
    """The refusal for an engine error: the write was not done, or its outcome is unknown."""
    if isinstance(error, FaultError):
        return internal_refusal(error.error_id)
    if isinstance(error, OutcomeUnknownError):
        return Refusal("OUTCOME_UNKNOWN", f"{error} Push the same deltas again: none of them counts twice.")
    return Refusal("BACKPRESSURE_ERROR", f"{error} Try again in a moment.")


def internal_refusal(error_id: str) -> Refusal:
    """The refusal for an internal fault; the log has the details under the id."""
    return Refusal("INTERNAL_ERROR", f"Something went wrong here; push the same deltas again. Error id {error_id}.")


def server_refusal(problem: Problem) -> Refusal:
    """The refusal for a problem of the server itself, whatever the surface: a credential, or too many uploads."""
    if problem.kind.status == 401:
        return Refusal("AUTH_ERROR", problem.detail)
    return Refusal("BACKPRESSURE_ERROR", problem.detail)
