"""Middleware for any WSGI application, with the same rules as `asgi`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from io import BytesIO
from typing import Any, Unpack

from semel.once.claims import FoundReceipt, Move, OnceClaim
from semel.once.errors import OnceError, StoreUnavailable
from semel.once.exchange import OnceAnswer, refusal
from semel.once.functions import Once
from semel.once.http_rules import HttpOptions, HttpRules, Incoming, RefusedRequest
from semel.once.request import KeyedRequest, current
from semel.once.runs import GuardedRun, play, stopwatch

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
            if key is None:
                return self._app(environ, start_response)
            body = _body(environ, self._rules, incoming)
            claim = self._rules.claim(incoming, key, body)
        except RefusedRequest as refused:
            return _answered(refused.answer, start_response)
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = BytesIO(body), str(len(body))
        return self._keyed(claim, environ, start_response)

    def _keyed(self, claim: OnceClaim, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        rules = self._rules
        try:
            found = play(rules.once.store, rules.entered(claim, stopwatch()))
        except StoreUnavailable as error:
            return self._app(environ, start_response) if rules.fail_open else _answered(refusal(error), start_response)
        except OnceError as error:
            return _answered(refusal(error), start_response)
        if found.move is not Move.RUN:
            return _answered(rules.stored_answer(found), start_response)
        return self._run(claim, found, environ, start_response)

    def _run(
        self, claim: OnceClaim, found: FoundReceipt, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Hold the answer back until it is stored, and until the transactions that joined the request are over.

        One that is too large, or a stream of events, is passed on when it is stored that it cannot be replayed.
        """
        rules, request, taken = self._rules, self._rules.request(claim), _Start()
        name = f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"
        run = GuardedRun(rules.once.store, claim, lambda *_: rules.raised(request), name)
        token, fault, pieces, rest = current.set(request), None, None, None
        try:
            run.hold(found)
            pieces = self._app(environ, taken)
            body, rest = _collected(pieces, taken, rules.max_answer)
            if rest is not None and request.has_open_block:
                raise rules.too_large_joined()
            answer = OnceAnswer(taken.status, taken.headers, b"".join(body))
            try:
                self._store(request, answer, is_whole=rest is None, is_stream=taken.is_event_stream)
            except OnceError as error:
                fault = error
                raise
        except BaseException as error:
            if rest is not None:
                _close(pieces)
            run.settle(error)
            refused = rules.refusal_of(request, fault)
            if refused is None or not isinstance(error, Exception):
                raise
            return _answered(refused, start_response)
        finally:
            current.reset(token)
            run.end()
        replaced = rules.refusal_of(request, None) if answer.status >= 500 else None
        if replaced is not None:
            return _answered(replaced, start_response)
        start_response(taken.line, taken.listed, taken.fault)
        return body if rest is None else _Chained(body, rest, pieces)

    def _store(self, request: KeyedRequest, answer: OnceAnswer, *, is_whole: bool, is_stream: bool) -> None:
        rules = self._rules
        if is_whole and not is_stream:
            play(rules.once.store, rules.answered(request, answer))
            return
        why = "it is a stream of events" if is_stream else f"it has more than {rules.max_answer} bytes"
        play(rules.once.store, rules.unstored(request, answer, why))


class _Start:
    """The `start_response` that the application calls."""

    def __init__(self) -> None:
        self.line = ""
        self.listed: list[tuple[str, str]] = []
        self.fault: Any = None

    def __call__(self, line: str, headers: list[tuple[str, str]], fault: Any = None) -> Callable[[bytes], object]:
        self.line, self.listed, self.fault = line, headers, fault
        return self._write

    def _write(self, data: bytes) -> object:
        raise RuntimeError("once does not support the write callable of WSGI: return the body instead.")

    @property
    def status(self) -> int:
        return int(self.line[:3]) if self.line else 500

    @property
    def is_event_stream(self) -> bool:
        """Whether the answer is a stream of server-sent events, which has no end to wait for."""
        return any(
            name.lower() == "content-type" and value.startswith("text/event-stream") for name, value in self.listed
        )

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


def _collected(pieces: Iterable[bytes], taken: _Start, most: int) -> tuple[list[bytes], Iterable[bytes] | None]:
    """A body, and its unread rest if it is too large or a stream of events."""
    body, size, rest, is_read = [], 0, iter(pieces), False
    try:
        for piece in rest:
            body.append(piece)
            size += len(piece)
            if size > most or taken.is_event_stream:
                is_read = True
                return body, rest
    finally:
        if not is_read:
            _close(pieces)
    return body, None


def _close(pieces: Iterable[bytes] | None) -> None:
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


def _body(environ: Environ, rules: HttpRules, incoming: Incoming) -> bytes:
    """The whole body. Raises `RefusedRequest` if it is too large or its length is unknown."""
    announced, most = environ.get("CONTENT_LENGTH") or "", rules.max_body(incoming)
    if announced.isdigit():
        left = int(announced)
    elif environ.get("wsgi.input_terminated"):
        left = most + 1  # the server signals its end
    elif "HTTP_TRANSFER_ENCODING" in environ:
        raise RefusedRequest(rules.without_length())
    else:
        left = 0
    if announced and left > most:
        raise RefusedRequest(rules.too_large(incoming))
    body = bytearray()
    while left > 0 and (piece := environ["wsgi.input"].read(min(left, PIECE_BYTES))):
        body += piece
        left -= len(piece)
    if len(body) > most:
        raise RefusedRequest(rules.too_large(incoming))
    return bytes(body)


def _answered(answer: OnceAnswer, start_response: StartResponse) -> Iterable[bytes]:
    is_known = any(answer.status == status for status in HTTPStatus)
    line = f"{answer.status} {HTTPStatus(answer.status).phrase if is_known else 'Status'}"
    start_response(line, [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers])
    return [answer.body]
