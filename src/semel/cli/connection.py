"""The HTTP connection of the client commands: server address, requests, responses and errors.

The connection is reused. The token is only in the Authorization header, never in a message. Every error is one sentence
and exit code 1. A refusal has the server's own sentence: from its problem document, from the objects of jobs (`error`
and `message`) and deltas (`code` and `error`), or from the `error` object of the ledger. An unknown response, such as
the page of a proxy, is named by its status.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from select import select
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from semel.cli.output import printable

DEFAULT_URL = "http://127.0.0.1:8788"
DEFAULT_PORTS = {"http": 80, "https": 443}


class CliAddress(NamedTuple):
    """The parts of a base URL. `base` is the path prefix of a proxy, without a trailing slash."""

    url: str
    is_secure: bool
    host: str
    port: int
    base: str

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def parse_address(text: str) -> CliAddress:
    """The address of a URL. Raises ValueError with a reason."""
    parts = urlsplit(text)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("write the server's URL as http://127.0.0.1:8788")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "the server's URL must not have a user, query or fragment; put the token into SEMEL_TOKEN or --token-file"
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("the server's URL must be ASCII without spaces")
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return CliAddress(text.rstrip("/"), parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


class AddressType(click.ParamType[CliAddress]):
    """An option that takes a server's URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CliAddress:
        """The address, or a usage error."""
        if isinstance(value, CliAddress):
            return value
        try:
            return parse_address(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes that are retried."""

_UNSETTLED = frozenset({500, 502, 503, 504})
"""Status codes after which a write may have been stored, unless the answer says more."""

_ADVICE = {
    "backpressure": "later",
    "idempotency_store_full": "later",
    "overloaded": "later",
    "not_stored": "later",
    "not_durable": "same_key",
    "shutting_down": "same_key",
    "result_integrity_fail": "never",
    "BACKPRESSURE_ERROR": "later",
}
"""Error codes of jobs and deltas that say more than their status; other surfaces say what to do."""


class RequestError(click.ClickException):
    """A request without a usable answer. `may_pass` tells whether a retry may succeed."""

    may_pass = False
    is_unsettled = False
    wait_seconds = 0.0


class UnreachableError(RequestError):
    """No answer was received. The request may have taken effect if it was sent."""

    may_pass = True

    def __init__(self, address: CliAddress, cause: Exception, *, was_sent: bool) -> None:
        super().__init__(_lost(address) if was_sent else _not_reached(address, cause))
        self.is_unsettled = was_sent


class CliRefusedError(RequestError):
    """The server refused the request. `facts` is its whole answer, if that was an object."""

    facts: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, status: int, code: str, detail: str, wait_seconds: float, retry: object = None) -> None:
        super().__init__(printable(f"{detail} [{code}]" if code else detail))
        self.status = status
        self.code = code
        # Semel's answers say whether to retry; for a proxy's answer the status decides.
        self.may_pass = retry in ("same_key", "later") if isinstance(retry, str) else status in _PASSING
        self.is_unsettled = retry == "same_key" if isinstance(retry, str) else status in _UNSETTLED
        self.wait_seconds = wait_seconds


def refusal(address: CliAddress, status: int, body: bytes, retry_after: str | None) -> CliRefusedError:
    """The error of an unsuccessful answer."""
    wait_seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
    return refused(address, status, _document(body), wait_seconds)


def refused(address: CliAddress, status: int, document: dict[str, Any], wait_seconds: float) -> CliRefusedError:
    """The error of a parsed answer, such as that to one item of a batch."""
    code, detail = document.get("code"), document.get("detail") or document.get("title")
    error = document.get("error", document)
    if isinstance(error, str):
        code, detail = (error, document.get("message")) if "message" in document else (code, error)
    elif isinstance(error, dict) and error is not document:
        code, detail = error.get("code"), error.get("message")
    if not isinstance(code, str) or not isinstance(detail, str):
        code, detail = "", f"The server at {address.url} answered {status} {_phrase(status)}."
    told = CliRefusedError(status, code, detail, wait_seconds, document.get("retry", _ADVICE.get(code)))
    told.facts = document
    return told


def not_semel(address: CliAddress, surface: str = "streams") -> click.ClickException:
    """The error for an answer that is not from this surface."""
    return click.ClickException(f"The server at {address.url} does not speak the {surface} protocol: check --url.")


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "(unknown status)"


def _not_reached(address: CliAddress, cause: Exception) -> str:
    if not address.is_loopback or not isinstance(cause, ConnectionRefusedError):
        return f"No server answers at {address.url} ({printable(str(cause))}): check --url or SEMEL_URL."
    port = "" if address.port == 8788 else f" --port {address.port}"
    return f"No server answers at {address.url}: start one with `semel serve{port}`, or give another --url."


def _lost(address: CliAddress) -> str:
    return f"The connection to {address.url} was lost before the answer came."


ANSWER_SECONDS = 30.0
SILENCE_SECONDS = 90.0
"""Read timeout of a live read, in seconds: the server sends something at least every 30 s."""

_FAILURES = (OSError, HTTPException)


class CliAnswer(NamedTuple):
    """A complete successful answer."""

    address: CliAddress
    status: int
    headers: HTTPMessage
    body: bytes

    def is_true(self, header: str) -> bool:
        """Whether a header is `true`."""
        return self.headers.get(header, "").lower() == "true"

    @property
    def content_type(self) -> str:
        """The stream's media type as the server sent it."""
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


class CliConnection:
    """An HTTP connection to one server; requests are sent one after another."""

    def __init__(self, address: CliAddress, token: str | None = None) -> None:
        self.address = address
        self._credential = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._kept: HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._kept is not None:
            self._kept.close()

    def request(
        self, method: str, path: str, headers: Mapping[str, bytes] | None = None, body: bytes | None = None
    ) -> CliAnswer:
        """The answer to one request. Raises RequestError unless it is successful."""
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
        return CliAnswer(self.address, response.status, response.headers, content)

    @contextmanager
    def events(
        self, path: str, headers: Mapping[str, bytes] | None = None, surface: str = "streams"
    ) -> Iterator[HTTPResponse]:
        """An event stream, read line by line. It ends, possibly truncated, when the server disconnects."""
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
            wire.close()  # no request is open, so readable means closed
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
        # A server that refuses a large body stops reading it: its answer has arrived although sending failed.
        with suppress(BrokenPipeError, ConnectionResetError):
            wire.request(method, self.address.base + path, body, {**headers, **self._credential})
        return wire.getresponse()

    def _refuse_failure(self, status: int, headers: HTTPMessage, body: bytes) -> None:
        if not 200 <= status < 300:
            raise refusal(self.address, status, body, headers.get("Retry-After"))
