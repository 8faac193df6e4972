"""One request to an application in this process: each attempt in an event loop of its own, and written anew.

A retry is written in another way than the first request: JSON with other spaces and another order of its members, a
form with another boundary. What an application keeps for one event loop fails in the next one.
"""

from __future__ import annotations

import asyncio
import inspect
import json as json_module
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from semel.testing.calls import UnusableCallError

UNSAID: Any = object()


class AppAnswer(NamedTuple):
    """What a client has received; a status of 0 is no answer."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    error: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the client takes its request for done."""
        return 200 <= self.status < 400

    @property
    def code(self) -> str:
        """The code of a problem document."""
        try:
            return str(json_module.loads(self.body)["code"])
        except (ValueError, KeyError, TypeError):
            return ""

    @property
    def shown(self) -> str:
        """The answer in a sentence."""
        if not self.status:
            return f"no answer ({self.error})" if self.error else "no answer"
        return f"{self.status} {self.code or self.body[:80].decode('utf-8', 'replace')}".rstrip()


@dataclass(frozen=True)
class AppRequest:
    """A request of which each attempt is written anew."""

    app: Any
    path: str
    method: str
    headers: Mapping[str, str]
    json: Any
    content: bytes
    files: Mapping[str, bytes]
    timeout: float
    key: str = ""

    def body(self, attempt: int) -> tuple[bytes, str]:
        """The body of an attempt and its content type."""
        if self.files:
            boundary = f"attempt-{attempt}-{uuid.uuid4().hex}"
            parts = [
                f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'.encode()
                + content
                + b"\r\n"
                for name, content in self.files.items()
            ]
            return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"
        if self.json is UNSAID:
            return self.content, ""
        value = _reordered(self.json) if attempt % 2 else self.json
        text = json_module.dumps(value, separators=(", ", ": ") if attempt % 2 else (",", ":"))
        return text.encode(), "application/json; charset=utf-8" if attempt % 2 else "application/json"

    def fields(self, attempt: int) -> tuple[list[tuple[str, str]], bytes]:
        """The headers and the body of an attempt."""
        body, kind = self.body(attempt)
        given = {name.lower(): value for name, value in self.headers.items()}
        own = {"host": "testserver", "idempotency-key": self.key, "content-length": str(len(body))}
        if kind:
            own["content-type"] = kind
        return list((given | own).items()), body


def _reordered(value: Any) -> Any:
    """Equal JSON with its members in another order."""
    if isinstance(value, dict):
        return {name: _reordered(one) for name, one in reversed(value.items())}
    return [_reordered(one) for one in value] if isinstance(value, list) else value


class Interruption:
    """What happens to one attempt. It does nothing by itself."""

    def answer(self, message: dict[str, Any]) -> None:
        """Called before each message of the application's answer; may raise."""


def send(request: AppRequest, attempt: int, happens: Interruption | None = None) -> AppAnswer:
    """Send one attempt and wait for the application's end."""
    happens = happens or Interruption()
    if is_asgi(request.app):
        return asyncio.run(asyncio.wait_for(_asgi(request, attempt, happens), request.timeout))
    return _wsgi(request, attempt, happens)


def is_asgi(app: Any) -> bool:
    """Whether an application takes scope, receive and send."""
    return inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(getattr(app, "__call__", None))  # noqa: B004


async def _asgi(request: AppRequest, attempt: int, happens: Interruption) -> AppAnswer:
    async with Lifespan(request.app):
        return await asgi_answer(request, attempt, happens)


async def asgi_answer(request: AppRequest, attempt: int, happens: Interruption) -> AppAnswer:
    """Call an ASGI application once."""
    fields, body = request.fields(attempt)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path.partition("?")[0],
        "raw_path": request.path.partition("?")[0].encode(),
        "query_string": request.path.partition("?")[2].encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
        "state": {},
    }
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
    start: dict[str, Any] = {}
    pieces: list[bytes] = []
    is_whole = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await is_whole.wait()
        return {"type": "http.disconnect"}

    async def take(message: dict[str, Any]) -> None:
        happens.answer(message)
        if message["type"] == "http.response.start":
            start.update(message)
        elif message["type"] == "http.response.body":
            pieces.append(bytes(message.get("body", b"")))
            if not message.get("more_body", False):
                is_whole.set()

    error = ""
    try:
        await request.app(scope, receive, take)
    except Exception as raised:  # noqa: BLE001 - a server answers 500 for any error of its application
        error = f"{type(raised).__name__}: {raised}"
    if not start or not is_whole.is_set():
        return AppAnswer(0, error=error or "the application returned without an answer")
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start.get("headers", ())}
    return AppAnswer(start["status"], headers, b"".join(pieces), error)


class Lifespan:
    """Starts an application in this event loop, and ends it, as a server does."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_supported = False

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._run())
        self._asked.put_nowait({"type": "lifespan.startup"})
        message = await self._told.get()
        self._is_supported = message["type"] == "lifespan.startup.complete"
        if message["type"] == "lifespan.startup.failed":
            raise UnusableCallError(f"The application does not start: {message.get('message', '')}")

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None, "it was entered"
        if self._is_supported:
            self._asked.put_nowait({"type": "lifespan.shutdown"})
        await self._task

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._app(scope, self._asked.get, self._told.put)
        except Exception:  # noqa: BLE001 - an application without a lifespan raises
            self._told.put_nowait({"type": "unsupported"})
        else:
            self._told.put_nowait({"type": "ended"})


def _wsgi(request: AppRequest, attempt: int, happens: Interruption) -> AppAnswer:
    """Call a WSGI application once."""
    fields, body = request.fields(attempt)
    path, _, query = request.path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in fields:
        plain = name.upper().replace("-", "_")
        environ[plain if plain in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{plain}"] = value
    lines: list[tuple[str, list[tuple[str, str]]]] = []

    def start(line: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], object]:
        lines[:] = [(line, headers)]
        return lambda data: None

    pieces: list[bytes] = []
    try:
        found = request.app(environ, start)
        try:
            for piece in found:
                happens.answer({"type": "http.response.body", "body": piece})
                pieces.append(piece)
        finally:
            getattr(found, "close", lambda: None)()
    except Exception as raised:  # noqa: BLE001 - a server answers 500 for any error of its application
        return AppAnswer(0, error=f"{type(raised).__name__}: {raised}")
    if not lines:
        return AppAnswer(0, error="the application did not call start_response")
    line, headers = lines[0]
    return AppAnswer(int(line[:3]), {name.lower(): value for name, value in headers}, b"".join(pieces))
