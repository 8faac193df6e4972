"""HTTP request and answer types of the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import orjson

from semel.contracts.fields import Fields
from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.model import Place
from semel.contracts.ledger.wire.problems import kind_of, problem_body
from semel.server.http.answer import JSON, NO_STORE, Answer, Header, StreamedAnswer
from semel.server.http.request import Request as HttpRequest
from semel.server.ledger.desk import Asked

PROBLEM: Header = (b"content-type", b"application/problem+json")
REPLAYED: Header = (b"idempotency-replayed", b"true")


class Body:
    """The body of a request, held until it is taken: a large one is freed before the request is executed."""

    __slots__ = ("_content", "size")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def take(self) -> bytes:
        """All of it, once."""
        content, self._content = self._content, b""
        return content


class Request(NamedTuple):
    """An HTTP call: the principal, the place, the path and the input."""

    asked: Asked
    place: Place
    """Without a meaning where the path names none."""
    name: str
    """The last name in the path: a key, a client, a height, a transaction."""
    fields: Fields
    query: bytes
    body: Body
    http: HttpRequest


Call = Callable[[Request], Awaitable[Answer | StreamedAnswer]]


def answer_json(facts: Mapping[str, Any], status: int = 200, *more: Header) -> Answer:
    """A JSON answer."""
    return Answer(status, [JSON, NO_STORE, *more], orjson.dumps(facts))


def refuse(refusal: Refusal, *more: Header) -> Answer:
    """A refusal as an answer, with Retry-After if it has one."""
    headers = [PROBLEM, NO_STORE, *more]
    if refusal.retry_after_ms is not None:
        headers.append((b"retry-after", b"%d" % max(1, -(-refusal.retry_after_ms // 1_000))))
    return Answer(kind_of(refusal).status, headers, problem_body(refusal))
