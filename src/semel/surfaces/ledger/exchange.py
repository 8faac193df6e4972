"""One HTTP exchange: request, answer, streamed answer; and the API version of a request over HTTP or gRPC."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import orjson

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.http.answer import JSON, NO_STORE, Answer, Header, StreamedAnswer
from semel.server.http.request import Request as HttpRequest
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.service import LedgerCaller

REPLAYED: Header = (b"idempotency-replayed", b"true")


class LedgerBody:
    """The body of a request, held until it is taken, so that a large body is freed before the request is executed."""

    __slots__ = ("_content", "size")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def take(self) -> bytes:
        """Return the body and release it."""
        content, self._content = self._content, b""
        return content


class LedgerRequest(NamedTuple):
    """An HTTP call: the principal, the place, the path and the input."""

    asked: LedgerCaller
    place: LedgerPlace
    """Meaningless if the path names no place."""
    name: str
    """The last name in the path: a key, a client, a height or a transaction."""
    fields: HeaderFields
    query: bytes
    body: LedgerBody
    http: HttpRequest


LedgerCall = Callable[[LedgerRequest], Awaitable[Answer | StreamedAnswer]]


def answer_json(facts: Mapping[str, Any], status: int = 200, *more: Header) -> Answer:
    """A JSON answer."""
    return Answer(status, [JSON, NO_STORE, *more], orjson.dumps(facts))


API_VERSION = b"x-ledger-api-version"
VERSION = 1
_NUMBER = re.compile(rb"[0-9]{1,20}")
_NAME = API_VERSION.decode()


def api_version(value: bytes | None) -> int:
    """The API version in a header; the current version if it is absent. Refuse any other value."""
    if value is None:
        return VERSION
    if _NUMBER.fullmatch(value) is None:
        raise invalid(f"{_NAME} must be a whole number.", _NAME)
    if int(value) != VERSION:
        message = f"This server speaks version {VERSION} of the interface."
        raise Refused("ledger:failed_precondition", message, {"field": _NAME})
    return VERSION


def check_version(fields: HeaderFields) -> None:
    """Check every API version header of a request, since a client may repeat it."""
    for value in fields.all(API_VERSION):
        api_version(value)
