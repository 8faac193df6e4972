"""The HTTP client of commands: requests out, answers or one-sentence errors back.

The connection is kept between requests. The token travels in the Authorization header alone and stands in no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from select import select
from typing import NamedTuple

from semel.cli.address import Address
from semel.cli.failures import UnreachableError, not_semel, refusal

ANSWER_SECONDS = 30.0
SILENCE_SECONDS = 90.0
"""A live read says something at least every half minute; after this long the server is taken for gone."""

_FAILURES = (OSError, HTTPException)


class Answer(NamedTuple):
    """A whole answer that is a success."""

    address: Address
    status: int
    headers: HTTPMessage
    body: bytes

    def is_true(self, header: str) -> bool:
        """Whether a header says `true`."""
        return self.headers.get(header, "").lower() == "true"

    @property
    def content_type(self) -> str:
        """The stream's media type as it was given."""
        return self.headers.get("Content-Type", "")

    @property
    def next_offset(self) -> str:
        """The offset to continue from."""
        offset = self.headers.get("Stream-Next-Offset")
        if offset is None:
            raise not_semel(self.address)
        return offset

    @property
    def is_closed(self) -> bool:
        """Whether the stream has ended."""
        return self.is_true("Stream-Closed")


class Connection:
    """An HTTP connection to one server; requests are sent one after another."""

    def __init__(self, address: Address, token: str | None = None) -> None:
        self.address = address
        self._credential = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._kept: HTTPConnection | None = None

    def close(self) -> None:
        """Let go of the server."""
        if self._kept is not None:
            self._kept.close()

    def request(
        self, method: str, path: str, headers: Mapping[str, bytes] | None = None, body: bytes | None = None
    ) -> Answer:
        """The answer to one request; a RequestError unless it is a success."""
        wire = self._reused() or self._connect(ANSWER_SECONDS)
        try:
            response = self._exchange(wire, method, path, headers or {}, body)
            content = response.read()
        except _FAILURES as error:
            wire.close()
            raise UnreachableError(self.address, error, was_sent=True) from error
        if not response.will_close:
            self._kept = wire
        self._refuse_failure(response.status, response.headers, content)
        return Answer(self.address, response.status, response.headers, content)

    @contextmanager
    def events(
        self, path: str, headers: Mapping[str, bytes] | None = None, surface: str = "streams"
    ) -> Iterator[HTTPResponse]:
        """An event stream, to be read line by line; it ends as if cut off when the server goes."""
        wire = self._connect(SILENCE_SECONDS)
        try:
            response = self._exchange(wire, "GET", path, headers or {}, None)
            if response.status != 200:
                self._refuse_failure(response.status, response.headers, response.read())
            if response.headers.get_content_type() != "text/event-stream":
                raise not_semel(self.address, surface)
            yield response
        except _FAILURES as error:
            raise UnreachableError(self.address, error, was_sent=True) from error
        finally:
            wire.close()

    def _reused(self) -> HTTPConnection | None:
        """The connection of the last request, unless the server has closed it meanwhile."""
        wire, self._kept = self._kept, None
        if wire is not None and select([wire.sock], [], [], 0)[0]:
            wire.close()  # nothing was asked, so all that can be there to read is the end
            return None
        return wire

    def _connect(self, seconds: float) -> HTTPConnection:
        kind = HTTPSConnection if self.address.is_secure else HTTPConnection
        wire = kind(self.address.host, self.address.port, timeout=seconds)
        try:
            wire.connect()
        except OSError as error:
            wire.close()
            raise UnreachableError(self.address, error, was_sent=False) from error
        return wire

    def _exchange(
        self, wire: HTTPConnection, method: str, path: str, headers: Mapping[str, bytes], body: bytes | None
    ) -> HTTPResponse:
        # A server that refuses a large body stops reading it: its answer is there although sending failed.
        with suppress(BrokenPipeError, ConnectionResetError):
            wire.request(method, self.address.base + path, body, {**headers, **self._credential})
        return wire.getresponse()

    def _refuse_failure(self, status: int, headers: HTTPMessage, body: bytes) -> None:
        if not 200 <= status < 300:
            raise refusal(self.address, status, body, headers.get("Retry-After"))
