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
from semel.kernel.errors import Refusal, Retry
from semel.server.http.answer import NO_STORE, Answer, Header

PROBLEM: Header = (b"content-type", b"application/problem+json")
RETRY_MS = 1_000
"""Milliseconds for Retry-After, if the refusal gives none."""


def problem_body(refusal: Refusal) -> bytes:
    """The problem document of a refusal, as JSON."""
    kind = refusal.kind
    return orjson.dumps(
        {
            "type": kind.type,
            "title": kind.title,
            "status": refusal.status,
            "code": kind.code,
            "detail": refusal.message,
            "retry": kind.retry.value,
        }
    )


def problem_headers(refusal: Refusal) -> list[Header]:
    """Content-Type, Cache-Control, the headers of the refusal, and Retry-After with status 429 or 503."""
    headers = [PROBLEM, NO_STORE, *refusal.headers]
    if refusal.status in (429, 503) and refusal.kind.retry is not Retry.NEVER:
        headers.append(retry_after(refusal))
    return headers


def retry_after(refusal: Refusal) -> Header:
    """The Retry-After header, in whole seconds, rounded up."""
    wait_ms = RETRY_MS if refusal.retry_after_ms is None else refusal.retry_after_ms
    return (b"retry-after", b"%d" % max(1, -(-wait_ms // 1_000)))


def problem_answer(refusal: Refusal) -> Answer:
    """The HTTP answer for a refusal."""
    return Answer(refusal.status, problem_headers(refusal), problem_body(refusal))


def engine_refusal(error: EngineError) -> Refusal:
    """The refusal for an engine error."""
    if isinstance(error, OverloadedError):
        return Refusal("OVERLOADED", "Too many writes are waiting. Nothing was stored; try again in a moment.")
    if isinstance(error, UnavailableError):
        return Refusal("UNAVAILABLE", f"{error} Try again in a moment.")
    if isinstance(error, NotStoredError):
        return Refusal("NOT_STORED", f"{error} Send the request again.")
    if isinstance(error, OutcomeUnknownError):
        return Refusal("OUTCOME_UNKNOWN", f"{error} Repeat it with the same Idempotency-Key or producer tuple.")
    error_id = error.error_id if isinstance(error, FaultError) else "unknown"
    return Refusal("INTERNAL_ERROR", f"Something went wrong here, and nothing was stored. Error id {error_id}.")


def internal_refusal(error_id: str) -> Refusal:
    """The refusal for a fault outside the commit path. A write may have been stored; the log has the details."""
    advice = "Repeat a write with the same Idempotency-Key or producer tuple."
    return Refusal("INTERNAL_ERROR", f"Something went wrong here. {advice} Error id {error_id}.")
