"""What the streams tests say to a server and how they read its answers.

Nothing here knows the implementation: requests, problem documents, SSE frames and raw bytes are those of the
published contract.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import LateError, Servers, check_log, in_time, unless_late

ROOT = "/v1/stream/"
START = "0000000000000000_0000000000000000"
TOO_FAR = "9999999999999999_9999999999999999"
OFFSET = re.compile(r"[0-9]{16}_[0-9]{16}")
JSON = "application/json"
TEXT = "text/plain"
OCTETS = "application/octet-stream"
KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
CLOSED = {"Stream-Closed": "true"}
PATIENCE_SECONDS = 30.0
"""How long any one answer may take before the test gives up on it."""

Headers = Mapping[str, str] | Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]]


class Streams:
    """A client of one server. Every stream it makes has a name of its own, so that tests share the server."""

    def __init__(self, server: Servers) -> None:
        self.server = server
        transport = server.transport() if isinstance(server, Nodes) else None
        self.client = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS, transport=transport)
        self._numbers = itertools.count(1)

    def path(self, name: str = "") -> str:
        """A path that no stream has had."""
        return f"{ROOT}{name or 'test'}-{next(self._numbers)}"

    def new(self, content_type: str = JSON, body: bytes = b"", headers: Mapping[str, str] | None = None) -> str:
        """Create a stream, return its path."""
        path = self.path()
        created = self.put(path, content_type, body, headers)
        assert created.status_code == 201, created.text
        return path

    def put(
        self,
        path: str,
        content_type: str | None = JSON,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        given = {} if content_type is None else {"Content-Type": content_type}
        return self.client.put(path, headers=given | dict(headers or {}), content=body)

    def post(
        self,
        path: str,
        body: bytes | Iterable[bytes] = b"",
        headers: Mapping[str, str] | None = None,
        *,
        content_type: str | None = JSON,
    ) -> httpx.Response:
        given = {} if content_type is None else {"Content-Type": content_type}
        return self.client.post(path, headers=given | dict(headers or {}), content=body)

    def keyed(
        self,
        path: str,
        key: str,
        body: bytes = b"1",
        headers: Mapping[str, str] | None = None,
        *,
        content_type: str | None = JSON,
    ) -> httpx.Response:
        """An append under an Idempotency-Key."""
        return self.post(path, body, dict(headers or {}) | {KEY: key}, content_type=content_type)

    def close(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.post(path, b"", CLOSED | dict(headers or {}), content_type=None)

    def get(self, path: str, headers: Headers | None = None, /, **query: str) -> httpx.Response:
        return self.client.get(path, headers=headers, params=query or None)

    def head(self, path: str) -> httpx.Response:
        return self.client.head(path)

    def delete(self, path: str) -> httpx.Response:
        return self.client.delete(path)

    def tail(self, path: str) -> str:
        """The stream's tail; asking for it restarts no TTL window."""
        answer = self.head(path)
        assert answer.status_code == 200
        return offset_of(answer)

    def content(self, path: str) -> bytes:
        """All of the stream's bytes."""
        offset, content = "-1", b""
        while True:
            page = self.get(path, offset=offset)
            assert page.status_code == 200, page.text
            content += page.content
            if "Stream-Up-To-Date" in page.headers:
                return content
            offset = offset_of(page)

    def messages(self, path: str) -> list[Any]:
        """All messages of a JSON stream."""
        offset, messages = "-1", list[Any]()
        while True:
            page = self.get(path, offset=offset)
            assert page.status_code == 200, page.text
            messages += page.json()
            if "Stream-Up-To-Date" in page.headers:
                return messages
            offset = offset_of(page)

    @contextmanager
    def live(self, path: str, offset: str = "-1") -> Iterator[Live]:
        """An open SSE read."""
        with self.client.stream("GET", path, params={"live": "sse", "offset": offset}) as response:
            assert response.status_code == 200, response.read()
            yield Live(response)


store_kind = "sqlite"
"""What stands under the servers; `conftest` sets it."""


@contextmanager
def serving(data: Path, **settings: str) -> Iterator[Streams]:
    """A server with SEMEL_ settings, or two nodes, and a client. What they logged must show no fault of their own."""
    server = _servers(data, {f"SEMEL_{name}": value for name, value in settings.items()})
    with server:
        streams = Streams(server)
        with streams.client:
            yield streams
    check_log(server)


def _servers(data: Path, env: dict[str, str]) -> Servers:
    if store_kind == "postgres":
        return Nodes(data, 2, env=env | {"SEMEL_STORE": fresh_url(lanes="3")})
    return RunningServer(data, env=env | ({"SEMEL_STORE": "memory:"} if store_kind == "memory" else {}))


def offset_of(answer: httpx.Response) -> str:
    """The answer's Stream-Next-Offset, which must have the shape of one."""
    offset: str = answer.headers["Stream-Next-Offset"]
    assert OFFSET.fullmatch(offset), offset
    return offset


def producer(name: str, epoch: int | str, seq: int | str) -> dict[str, str]:
    """The three headers of an idempotent producer."""
    return {"Producer-Id": name, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


# Section 12's table: status and title of each code.
PROBLEMS = {
    "IDEMPOTENCY_MISMATCH": (409, "Idempotency Key Mismatch"),
    "INVALID_IDEMPOTENCY_KEY": (400, "Invalid Idempotency Key"),
    "STREAM_NOT_FOUND": (404, "Stream Not Found"),
    "STREAM_GONE": (410, "Stream Gone"),
    "STREAM_CLOSED": (409, "Stream Closed"),
    "STREAM_EXISTS": (409, "Stream Exists With Other Configuration"),
    "PRECONDITION_FAILED": (412, "Precondition Failed"),
    "UNSUPPORTED_ENCODING": (415, "Unsupported Content Encoding"),
    "CONTENT_TYPE_MISMATCH": (409, "Content Type Mismatch"),
    "SEQUENCE_CONFLICT": (409, "Sequence Conflict"),
    "PRODUCER_GAP": (409, "Producer Sequence Gap"),
    "PRODUCER_FENCED": (403, "Producer Epoch Is Stale"),
    "INVALID_PRODUCER": (400, "Invalid Producer Headers"),
    "INVALID_OFFSET": (400, "Invalid Offset"),
    "INVALID_EXPIRY": (400, "Invalid Expiry"),
    "INVALID_RETENTION": (400, "Invalid Retention"),
    "INVALID_JSON": (400, "Invalid JSON"),
    "EMPTY_BODY": (400, "Empty Body"),
    "MISSING_CONTENT_TYPE": (400, "Missing Content Type"),
    "INVALID_REQUEST": (400, "Invalid Request"),
    "METHOD_NOT_ALLOWED": (405, "Method Not Allowed"),
    "PAYLOAD_TOO_LARGE": (413, "Payload Too Large"),
    "UNAUTHORIZED": (401, "Unauthorized"),
    "FORBIDDEN": (403, "Forbidden"),
}
MEMBERS = {"type", "title", "status", "code"}
# The first two are the contract's; "retry" is the registry's advice, an extension member of RFC 9457.
OPTIONAL_MEMBERS = {"detail", "instance", "retry"}


def is_problem(answer: httpx.Response) -> dict[str, Any]:
    """Any refusal: a problem document with the members that it may have and no others, and never a replay."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert answer.headers.get("Content-Type") == "application/problem+json", answer.text
    assert REPLAYED not in answer.headers
    document = answer.json()
    assert isinstance(document, dict)
    assert set(document) >= MEMBERS
    assert set(document) <= MEMBERS | OPTIONAL_MEMBERS
    assert document["status"] == answer.status_code
    assert document["type"] == "/errors/" + document["code"].lower().replace("_", "-")
    return document


def refused(answer: httpx.Response, code: str) -> None:
    """The refusal with this code of section 12's table."""
    document = is_problem(answer)
    status, title = PROBLEMS[code]
    assert (answer.status_code, document["code"], document["title"]) == (status, code, title), document


# -- TTL windows ------------------------------------------------------------------------------------------------------


def nothing(path: str) -> None:
    """Leave a stream as it is."""


def window(seconds: int) -> Mapping[str, str]:
    """Headers of a stream that lives so long after it was last used."""
    return {"Stream-TTL": str(seconds)}


class Touch(NamedTuple):
    """Something done to a stream halfway through its window, and what the stream must have had before it."""

    act: Callable[[str], object]
    prepare: Callable[[str], object] = nothing
    headers: Callable[[int], Mapping[str, str]] = window
    """For a window of so many seconds from now."""


WINDOW_SECONDS = 2


def alive_after(streams: Streams, touches: Mapping[str, Touch]) -> dict[str, bool]:
    """Which streams outlive their first window, one stream for each touch, all on one time line.

    A machine too slow for the times to tell anything makes the line start again, with a longer window.
    """
    alive: dict[str, bool] = {}
    in_time(lambda seconds: alive.update(_alive_after(streams, touches, round(seconds))), WINDOW_SECONDS)
    return alive


def _alive_after(streams: Streams, touches: Mapping[str, Touch], seconds: int) -> dict[str, bool]:
    made = time.monotonic()
    with unless_late(lambda: made, seconds):
        paths = {name: streams.new(headers=touch.headers(seconds)) for name, touch in touches.items()}
        for name, touch in touches.items():
            touch.prepare(paths[name])
        ready = time.monotonic()
        time.sleep(seconds * 0.6)
        touched = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            for acting in [pool.submit(touch.act, paths[name]) for name, touch in touches.items()]:
                acting.result()
        assert time.monotonic() < made + seconds
    time.sleep(max(0.0, ready + seconds * 1.1 - time.monotonic()))
    alive = {name: streams.head(path).status_code == 200 for name, path in paths.items()}
    if time.monotonic() > touched + seconds * 0.95:
        raise LateError
    return alive


# -- SSE --------------------------------------------------------------------------------------------------------------

FRAME = re.compile(rb"event: (data|control)\n((?:data:[^\r\n]*\n)+)")


class Event(NamedTuple):
    """One frame: its kind and its data lines."""

    kind: str
    lines: tuple[str, ...]

    @property
    def control(self) -> dict[str, Any]:
        """The fields of a control event."""
        assert self.kind == "control"
        assert len(self.lines) == 1
        fields: dict[str, Any] = json.loads(self.lines[0])
        assert OFFSET.fullmatch(fields["streamNextOffset"])
        return fields

    @property
    def text(self) -> str:
        """The payload of a data event."""
        assert self.kind == "data"
        return "\n".join(self.lines)


class Live:
    """An open SSE response, frame by frame; a byte that belongs to no frame is a failure."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._chunks = response.iter_raw()
        self._buffer = b""

    def next(self) -> Event | None:
        """The next frame, or None at the end."""
        while b"\n\n" not in self._buffer:
            chunk = next(self._chunks, None)
            if chunk is None:
                assert self._buffer == b"", self._buffer
                return None
            self._buffer += chunk
        frame, _, self._buffer = self._buffer.partition(b"\n\n")
        match = FRAME.fullmatch(frame + b"\n")
        assert match, frame
        lines = match[2].decode().removesuffix("\n").split("\n")
        return Event(match[1].decode(), tuple(line.removeprefix("data:") for line in lines))

    def event(self) -> Event:
        """The next frame, which there must be."""
        event = self.next()
        assert event is not None, "the connection ended"
        return event

    def rest(self) -> list[Event]:
        """Every frame until the server ends the connection."""
        return list(iter(self.next, None))

    def until_up_to_date(self) -> list[Event]:
        """Every frame up to the first control event that says the reader has caught up."""
        events = [self.event()]
        while events[-1].kind == "data" or not events[-1].control.get("upToDate"):
            events.append(self.event())
        return events


# -- Raw bytes --------------------------------------------------------------------------------------------------------


class Wire:
    """One TCP connection: bytes go out as given, answers are taken apart one by one."""

    def __init__(self, server: Servers, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._socket = socket.create_connection((HOST, server.port), timeout=patience_seconds)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Send all of it, or as much as the server takes before it closes."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def answer(self, method: str = "GET") -> httpx.Response:
        """The next answer."""
        answer = self.answer_or_end(method)
        assert answer is not None, "the server closed without an answer"
        return answer

    def answer_or_end(self, method: str = "GET") -> httpx.Response | None:
        """The next answer, or None if the server closed instead of giving one."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                assert self._buffer == b"", self._buffer
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status_line, *lines = head.split(b"\r\n")
        match = re.fullmatch(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?", status_line)
        assert match, status_line
        headers = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        return self._with_body(int(match[1]), headers, method)

    def status_or_end(self) -> int | None:
        """The status of the next answer, whose body is left where it is, or None if there is no answer."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        match = re.match(rb"HTTP/1\.[01] ([0-9]{3}) ", self._buffer)
        assert match, self._buffer
        return int(match[1])

    def reset(self) -> None:
        """Break the connection off, as a machine that vanishes does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def closed(self) -> bool:
        """Whether the server closes the connection without another byte."""
        return not self._buffer and not self._more()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _with_body(self, status: int, headers: list[tuple[bytes, bytes]], method: str) -> httpx.Response:
        answer = httpx.Response(status, headers=headers)
        if method == "HEAD" or status < 200 or status in (204, 304):
            return answer
        if answer.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunked()
        elif "Content-Length" in answer.headers:
            body = self._exactly(int(answer.headers["Content-Length"]))
        else:
            while self._more():
                pass
            body, self._buffer = self._buffer, b""
        return httpx.Response(status, headers=headers, content=body)

    def _chunked(self) -> bytes:
        body = b""
        while size := int(self._line(), 16):
            body += self._exactly(size)
            assert self._line() == b""
        assert self._line() == b""
        return body

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            assert self._more(), "the answer was cut off"
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            assert self._more(), "the answer was cut off"
        body, self._buffer = self._buffer[:count], self._buffer[count:]
        return body

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)


def request(method: str, path: str, *headers: bytes, body: bytes | None = None) -> bytes:
    """The bytes of a request, with header lines as given; a body gets its Content-Length."""
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1"), b"Host: localhost", *headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def raw(server: Servers, method: str, path: str, *headers: bytes, body: bytes | None = None) -> httpx.Response:
    """One request on a connection of its own, its bytes exactly as given, and the answer."""
    with Wire(server) as wire:
        wire.send(request(method, path, *headers, body=body))
        return wire.answer(method)


def raw_append(server: Servers, path: str, *headers: bytes, body: bytes = b"1") -> httpx.Response:
    """An append of JSON with header lines as given."""
    return raw(server, "POST", path, b"Content-Type: application/json", *headers, body=body)
