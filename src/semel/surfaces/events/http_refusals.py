"""Refusals of events over HTTP: problem documents with the contract's code and details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from semel.kernel.errors import REGISTRY, Refusal
from semel.server.http.answer import NO_STORE, SECURITY, Answer, Header
from semel.server.http.problem import retry_after

STATIC: tuple[Header, ...] = (
    *SECURITY,
    (b"access-control-expose-headers", b"retry-after, x-request-id"),
)


def refusal(code: str, message: str, details: Mapping[str, Any], status: int) -> Answer:
    """A problem document with the contract's code and details."""
    kind = REGISTRY[code]
    body = orjson.dumps(
        {
            "type": kind.type,
            "title": kind.title,
            "status": status,
            "code": code,
            "detail": message,
            "details": dict(details),
            "retry": kind.retry.value,
        }
    )
    headers: list[Header] = [(b"content-type", b"application/problem+json"), NO_STORE]
    if status in (429, 503):
        headers.append(retry_after(Refusal(code, message)))
    return Answer(status, headers, body)


def rejection(problem: Refusal) -> Answer:
    """What the server refuses before this surface is asked, as this surface says it."""
    return refusal(problem.code, problem.message, {}, problem.kind.status)
