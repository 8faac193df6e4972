"""One exchange over HTTP: what a call is given, and what it gives back."""

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
    """The body of a request, which is held until it is taken: a large one is not to be held while it is carried out."""

    __slots__ = ("_content", "size")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def take(self) -> bytes:
        """All of it, once."""
        content, self._content = self._content, b""
        return content


class Request(NamedTuple):
    """One call: who asks, of which place, for what, and with what."""

    asked: Asked
    place: Place
    """Without a meaning where the path names none."""
    name: str
    """What the path names in the place: a key, a client, a height, a transaction."""
    fields: Fields
    query: bytes
    body: Body
    http: HttpRequest


Call = Callable[[Request], Awaitable[Answer | StreamedAnswer]]


def answer_json(facts: Mapping[str, Any], status: int = 200, *more: Header) -> Answer:
    """A JSON answer."""
    return Answer(status, [JSON, NO_STORE, *more], orjson.dumps(facts))


def refuse(refusal: Refusal, *more: Header) -> Answer:
    """A refusal as an answer, with the time to come back if it says one."""
    headers = [PROBLEM, NO_STORE, *more]
    if refusal.retry_after_ms is not None:
        headers.append((b"retry-after", b"%d" % max(1, -(-refusal.retry_after_ms // 1_000))))
    return Answer(kind_of(refusal).status, headers, problem_body(refusal))
