"""RFC 9457 problem documents: the form of every refusal, unless a contract says otherwise."""

from __future__ import annotations

import orjson

from semel.engine.contract import (
    EngineError,
    FaultError,
    NotStoredError,
    OutcomeUnknownError,
    OverloadedError,
    UnavailableError,
)
from semel.kernel.errors import Problem, Retry
from semel.server.http.answer import Answer, Header

RETRY_AFTER: Header = (b"retry-after", b"1")


def problem_body(problem: Problem) -> bytes:
    """The document."""
    kind = problem.kind
    return orjson.dumps(
        {
            "type": kind.type,
            "title": kind.title,
            "status": kind.status,
            "code": kind.code,
            "detail": problem.detail,
            "retry": kind.retry.value,
        }
    )


def problem_headers(problem: Problem) -> list[Header]:
    """Content type, the facts of the refusal, and Retry-After."""
    headers = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store"), *problem.headers]
    if problem.kind.status in (429, 503) and problem.kind.retry is not Retry.NEVER:
        headers.append(RETRY_AFTER)
    return headers


def problem_answer(problem: Problem) -> Answer:
    """The answer."""
    return Answer(problem.kind.status, problem_headers(problem), problem_body(problem))


def engine_problem(error: EngineError) -> Problem:
    """The problem document for an engine error."""
    if isinstance(error, OverloadedError):
        return Problem("OVERLOADED", "Too many writes are waiting. Nothing was stored; try again in a moment.")
    if isinstance(error, UnavailableError):
        return Problem("UNAVAILABLE", f"{error} Try again in a moment.")
    if isinstance(error, NotStoredError):
        return Problem("NOT_STORED", f"{error} Send the request again.")
    if isinstance(error, OutcomeUnknownError):
        return Problem("OUTCOME_UNKNOWN", f"{error} Repeat it with the same Idempotency-Key or producer tuple.")
    error_id = error.error_id if isinstance(error, FaultError) else "unknown"
    return Problem("INTERNAL_ERROR", f"Something went wrong here, and nothing was stored. Error id {error_id}.")


def internal_problem(error_id: str) -> Problem:
    """A fault outside the commit path, after which a write may be stored; the log has the rest."""
    advice = "Repeat a write with the same Idempotency-Key or producer tuple."
    return Problem("INTERNAL_ERROR", f"Something went wrong here. {advice} Error id {error_id}.")
