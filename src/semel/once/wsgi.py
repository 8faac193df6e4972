"""Middleware for any WSGI application, with the same rules as `asgi`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from io import BytesIO
from typing import Any, Unpack

from semel.once.calls import failed
from semel.once.claims import Move, OnceClaim
from semel.once.errors import OnceError, StoreUnavailable
from semel.once.exchange import OnceAnswer
from semel.once.functions import Once
from semel.once.http_rules import HttpOptions, HttpRules, Incoming, RefusedRequest, refused
from semel.once.identity import request
from semel.once.runs import play, renewed, stopwatch

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WsgiApp = Callable[[Environ, StartResponse], Iterable[bytes]]
PIECE_BYTES = 65_536


class WsgiMiddleware:
    """Wraps an application; see `HttpRules` for the options."""

    def __init__(self, app: WsgiApp, store: Once, **options: Unpack[HttpOptions]) -> None:
        self._app = app
        self._rules = HttpRules(store, **options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        incoming = _incoming(environ)
        try:
            key = self._rules.key_of(incoming)
        except RefusedRequest as refusal:
            return _answered(refusal.answer, start_response)
        if key is None:
            return self._app(environ, start_response)
        try:
            body = _body(environ, self._rules)
        except RefusedRequest as refusal:
            return _answered(refusal.answer, start_response)
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = BytesIO(body), str(len(body))
        return self._keyed(self._rules.claim(incoming, key, body), environ, start_response)

    def _keyed(self, claim: OnceClaim, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        rules = self._rules
        try:
            found = play(rules.once.store, rules.entered(claim, stopwatch()))
        except StoreUnavailable as error:
            return self._app(environ, start_response) if rules.fail_open else _answered(refused(error), start_response)
        except OnceError as error:
            return _answered(refused(error), start_response)
        if found.move is not Move.RUN:
            return _answered(rules.told(found), start_response)
        return self._run(claim, environ, start_response)

    def _run(self, claim: OnceClaim, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Hold the answer back until it is stored. One that is too large is passed on, and retries are refused."""
        rules, taken = self._rules, _Start()
        token = request.set(rules.joined(claim))
        try:
            with renewed(rules.once.store, claim):
                pieces = self._app(environ, taken)
                body, rest = _collected(pieces, rules.max_answer)
            answer = OnceAnswer(taken.status, taken.headers, b"".join(body))
        except BaseException as error:
            play(rules.once.store, failed(claim, rules.policy, error))
            raise
        finally:
            request.reset(token)
        try:
            flow = rules.ended(claim, answer) if rest is None else rules.outgrown(claim, answer.status)
            play(rules.once.store, flow)
        except OnceError as error:
            if rest is not None:
                _close(pieces)
            play(rules.once.store, failed(claim, rules.policy, error))
            return _answered(refused(error), start_response)
        start_response(taken.line, taken.listed, taken.fault)
        return body if rest is None else _Chained(body, rest, pieces)


class _Start:
    """The `start_response` that the application calls."""

    def __init__(self) -> None:
        self.line = "500 Internal Server Error"
        self.listed: list[tuple[str, str]] = []
        self.fault: Any = None

    def __call__(self, line: str, headers: list[tuple[str, str]], fault: Any = None) -> Callable[[bytes], object]:
        self.line, self.listed, self.fault = line, headers, fault
        return self._write

    def _write(self, data: bytes) -> object:
        raise RuntimeError("once does not support the write callable of WSGI: return the body instead.")

    @property
    def status(self) -> int:
        return int(self.line[:3])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.listed]


class _Chained:
    """The body parts that were collected, and then the rest."""

    def __init__(self, body: list[bytes], rest: Iterable[bytes], pieces: Iterable[bytes]) -> None:
        self._body, self._rest, self._pieces = body, rest, pieces

    def __iter__(self) -> Any:
        yield from self._body
        yield from self._rest

    def close(self) -> None:
        """Close the application's iterable."""
        _close(self._pieces)


def _collected(pieces: Iterable[bytes], most: int) -> tuple[list[bytes], Iterable[bytes] | None]:
    """A body, and its unread rest if it is too large."""
    body, size, rest = [], 0, iter(pieces)
    try:
        for piece in rest:
            body.append(piece)
            size += len(piece)
            if size > most:
                return body, rest
    finally:
        if size <= most:
            _close(pieces)
    return body, None


def _close(pieces: Iterable[bytes]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()


def _incoming(environ: Environ) -> Incoming:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            headers[name[5:].replace("_", "-").lower().encode("latin-1")] = [value.encode("latin-1")]
    headers[b"content-type"] = [environ.get("CONTENT_TYPE", "").encode("latin-1")]
    path = (
        (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))
        .encode("latin-1")
        .decode("utf-8", "surrogateescape")
    )
    query = environ.get("QUERY_STRING", "").encode("latin-1")
    return Incoming(environ["REQUEST_METHOD"], path, query, headers, environ)


def _body(environ: Environ, rules: HttpRules) -> bytes:
    """The whole body. Raises `RefusedRequest` if it is too large or its length is unknown."""
    announced = environ.get("CONTENT_LENGTH") or ""
    if announced.isdigit():
        left = int(announced)
    elif environ.get("wsgi.input_terminated"):
        left = rules.max_body + 1  # the server signals its end
    elif "HTTP_TRANSFER_ENCODING" in environ:
        raise RefusedRequest(rules.without_length())
    else:
        left = 0
    if announced and left > rules.max_body:
        raise RefusedRequest(rules.too_large())
    body = bytearray()
    while left > 0 and (piece := environ["wsgi.input"].read(min(left, PIECE_BYTES))):
        body += piece
        left -= len(piece)
    if len(body) > rules.max_body:
        raise RefusedRequest(rules.too_large())
    return bytes(body)


def _answered(answer: OnceAnswer, start_response: StartResponse) -> Iterable[bytes]:
    is_known = any(answer.status == status for status in HTTPStatus)
    line = f"{answer.status} {HTTPStatus(answer.status).phrase if is_known else 'Status'}"
    start_response(line, [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers])
    return [answer.body]
