"""Answers over HTTP as values: which are remembered, how they are stored, and what is compared of a request.

| situation | answer |
|---|---|
| a required key is missing, or a key is malformed | 400 |
| what `compare=` returns cannot be compared | 400 `invalid_body` |
| the scope of a request is missing | 400 `idempotency_scope_missing` |
| the body is too large to be compared | 413 |
| the same key with another request | 422 `key_mismatch` |
| the first request is still running | 409 `in_flight`, `Retry-After` |
| the first request ended without an answer, or with one that leaves its outcome open | 409 `outcome_unknown` |
| the first answer could not be stored | 409 `answer_not_stored` |
| the store does not answer, or has no table | 503 `store_unavailable`: nothing was run |

A stored answer has every end-to-end header of the first one but `Set-Cookie` and `Date`. A browser's `fetch` would fail
without those of CORS, and a client would misread a body without its `Content-Encoding`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from semel.once.errors import (
    InFlight,
    InvalidKey,
    KeyMismatch,
    OnceError,
    OutcomeUnknown,
    ResultError,
    RunAgain,
    StoreUnavailable,
    TableMismatch,
    TableMissing,
)

HEADER = b"idempotency-key"
REPLAYED = (b"idempotency-replayed", b"true")
PASSING = frozenset({401, 403, 408, 409, 421, 425, 429})
"""Status codes that a retry may change; by each the application says that it did nothing."""
BODILESS = frozenset({204, 304})
"""Status codes without a body, and so without a Content-Length."""
HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1)."""
NOT_STORED = HOP_BY_HOP | {b"content-length", b"date", b"set-cookie"}

Headers = Sequence[tuple[bytes, bytes]]


class OnceAnswer(NamedTuple):
    """A complete answer."""

    status: int
    headers: Headers
    body: bytes = b""

    def header(self, name: bytes) -> bytes:
        """The first value of a header, or nothing."""
        return next((value for known, value in self.headers if known.lower() == name), b"")


def request_fingerprint(method: str, path: bytes, query: bytes, content_type: bytes, body: bytes) -> bytes:
    """SHA-256 of what must be equal in two requests with one key. Each part is hashed with its length."""
    digest = hashlib.sha256()
    for part in (method.upper().encode(), path, query, content_type, body):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def says_nothing_done(answer: OnceAnswer) -> bool:
    """Whether the application says that it did nothing, and that a retry may succeed."""
    return answer.status in PASSING or (answer.status == 503 and answer.header(b"retry-after") != b"")


def packed(answer: OnceAnswer) -> str:
    """The text of an answer to store."""
    named = {
        token.strip().lower()
        for name, value in answer.headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    headers = [
        [name.decode("latin-1"), value.decode("latin-1")]
        for name, value in answer.headers
        if name.lower() not in NOT_STORED | named
    ]
    return json.dumps({"status": answer.status, "headers": headers, "body": base64.b64encode(answer.body).decode()})


def unpacked(text: str) -> OnceAnswer:
    """The answer of a text, marked as a replay."""
    facts = json.loads(text)
    body = base64.b64decode(facts["body"])
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in facts["headers"]]
    if facts["status"] not in BODILESS:
        headers.append((b"content-length", b"%d" % len(body)))
    return OnceAnswer(facts["status"], [*headers, REPLAYED], body)


def problem(status: int, code: str, detail: str, *more: tuple[bytes, bytes]) -> OnceAnswer:
    """A refusal as `application/problem+json`."""
    body = json.dumps({"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body))]
    return OnceAnswer(status, [*headers, *more], body)


def refusal(error: OnceError) -> OnceAnswer:
    """The answer to an error of this package."""
    if isinstance(error, KeyMismatch):
        return problem(422, "key_mismatch", "This Idempotency-Key was used for another request; nothing was run.")
    if isinstance(error, InFlight):
        wait = b"%d" % max(1, round(error.retry_after))
        detail = "A request with this Idempotency-Key is running; try again later."
        return problem(409, "in_flight", detail, (b"retry-after", wait))
    if isinstance(error, OutcomeUnknown):
        detail = (
            "An earlier request with this Idempotency-Key ended without an answer; whether it took effect is unknown."
        )
        return problem(409, "outcome_unknown", detail)
    if isinstance(error, ResultError):
        detail = "An earlier request with this Idempotency-Key took effect, and its answer was not stored."
        return problem(409, "answer_not_stored", detail)
    if isinstance(error, StoreUnavailable):
        detail = "The store of receipts does not answer; nothing was run."
        return problem(503, "store_unavailable", detail, (b"retry-after", b"1"))
    if isinstance(error, TableMissing | TableMismatch):
        return problem(503, "store_unavailable", str(error))
    if isinstance(error, RunAgain):
        detail = "Another request with this Idempotency-Key came first; try again."
        return problem(409, "in_flight", detail, (b"retry-after", b"1"))
    if isinstance(error, InvalidKey):
        return problem(400, "invalid_key", str(error))
    return problem(500, "internal", str(error))
