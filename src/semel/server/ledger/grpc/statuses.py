"""Refusals of the ledger as gRPC statuses, with details for machines in the trailers."""

from __future__ import annotations

from collections.abc import Mapping

from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.refusals import RefusedLedger
from semel.contracts.ledger.wire.problems import error_code, kind_of
from semel.engine.contract import EngineError
from semel.kernel.errors import Grpc, Refused, Retry
from semel.server.grpc.metadata import GrpcError, GrpcStatus, error_status
from semel.server.ledger.faults import RETRY_MS, engine_refusal, server_refusal
from semel.server.ledger.proto import ledger_pb2 as pb

_ADVICE = {
    Retry.SAME_KEY: "Send the same request again, with the same idempotency key and the same sequence.",
    Retry.LATER: "Wait for retry_after_ms, then send the same request again.",
}
_LARGEST_MS = 2**31 - 1


def refusal_of(error: Exception) -> Refusal | None:
    """What the caller is told of an error; None for a fault of the server."""
    match error:
        case RefusedLedger():
            return error.refusal
        case GrpcError():
            return Refusal(error.kind.name.lower(), error.message, error.context, error.retry_after_ms)
        case Refused():
            return server_refusal(error.problem)
        case EngineError():
            return engine_refusal(error)
        case _:
            return None


def refused(refusal: Refusal) -> GrpcStatus:
    """The status of a refusal."""
    kind = kind_of(refusal)
    wait_ms = refusal.retry_after_ms
    if wait_ms is None and kind.retry is Retry.LATER:
        wait_ms = RETRY_MS
    details = pb.ErrorDetails(
        error_code=error_code(refusal.code), is_retryable=kind.retry is not Retry.NEVER, context=refusal.context
    )
    if wait_ms is not None:
        details.retry_after_ms = wait_ms = min(wait_ms, _LARGEST_MS)
    if kind.retry in _ADVICE:
        details.suggested_action = _ADVICE[kind.retry]
    return error_status(kind.grpc, refusal.message, details.SerializeToString(), wait_ms)


def precondition(message: str, number: int, context: Mapping[str, str]) -> GrpcStatus:
    """A domain error that a client could take for a success if it came in the usual form."""
    details = pb.ErrorDetails(error_code=str(number), is_retryable=False, context=context)
    return error_status(Grpc.FAILED_PRECONDITION, message, details.SerializeToString())
