"""Refusals of events over HTTP: problem documents with the contract's code and details."""

from __future__ import annotations

import orjson

from semel.engine.contract import EngineError, FaultError, OverloadedError
from semel.kernel.errors import Refusal
from semel.server.http.answer import NO_STORE, SECURITY, Answer, Header
from semel.server.http.problem import PROBLEM, retry_after

REPLAYED_HEADER = b"events-replayed"
"""The positions in the request of items that were committed before, from 0."""
EPOCH_HEADER = b"events-log-epoch"
"""The epoch of the log that an event stream reads."""
SINCE_HEADER = b"events-since"
"""The position behind which an event stream begins: below the cursor of a client that is ahead of the log."""
_OWN_HEADERS = (REPLAYED_HEADER, EPOCH_HEADER, SINCE_HEADER)
STATIC: tuple[Header, ...] = (
    *SECURITY,
    (
        b"access-control-expose-headers",
        b"%b, %b, %b, retry-after, x-request-id" % (REPLAYED_HEADER, EPOCH_HEADER, SINCE_HEADER),
    ),
)
_RETRY = {"retry_after_ms": 1_000}


def refuse(refusal: Refusal) -> Answer:
    """A problem document with the contract's code and details."""
    kind = refusal.kind
    body = orjson.dumps(
        {
            "type": kind.type,
            "title": kind.title,
            "status": refusal.status,
            "code": refusal.code,
            "detail": refusal.message,
            "details": dict(refusal.facts),
            "retry": kind.retry.value,
        }
    )
    headers = [PROBLEM, NO_STORE]
    if refusal.status in (429, 503):
        headers.append(retry_after(refusal))
    return Answer(refusal.status, [*headers, *refusal.headers], body)


def own_refusal(refusal: Refusal) -> Refusal:
    """The refusal with a code of events, if the server itself refused a credential or has too many uploads."""
    if refusal.code == "UNAUTHORIZED":
        return refusal._replace(code="auth_failed")
    if refusal.code == "QUOTA_EXCEEDED":
        facts = {**refusal.facts, "retry_after_ms": refusal.retry_after_ms}
        return refusal._replace(code="quota_exceeded", facts=facts)
    if refusal.code == "OVERLOADED":
        return refusal._replace(code="rate_limited", facts=_RETRY, own_status=503)
    return refusal


def engine_refusal(error: EngineError) -> Refusal:
    """The refusal for an engine error."""
    if isinstance(error, OverloadedError):
        return Refusal("rate_limited", f"{error} Try again in a moment.", _RETRY, own_status=503)
    if isinstance(error, FaultError):
        message = f"Something went wrong here; repeat it with the same ids. Error id {error.error_id}."
        return Refusal("server_error", message)
    return Refusal("server_error", f"{error} Repeat it with the same ids.", own_status=503)
