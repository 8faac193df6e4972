"""The four doors over HTTP in front of one handler, which answers as it is told and counts its runs."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from semel import once
from semel.once import Middleware, Once, WsgiMiddleware
from semel.once.django import once_per_key
from semel.proxy.settings import route_of
from tests.once.houses_django import DjangoSqlite
from tests.proxy.running import CLIENT, proxied
from tests.proxy.upstream import serving

assert not DjangoSqlite.can_end_inside, "its module configures Django"

Headers = Sequence[tuple[str, str]]
URL = "http://shop.test/charges"
_numbers = itertools.count(1)


class Door(ABC):
    """A door; every answer is that of `reply`, or the exception `raises`."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.runs = 0
        self.status, self.headers, self.body = 200, [("Content-Type", "text/plain")], b"done"
        self.raises: Exception | None = None
        self.scope: Any = None
        self._stack = ExitStack()

    def ask(
        self, key: str | None = "k", body: bytes = b"5", *, url: str = URL, method: str = "POST", **headers: str
    ) -> httpx.Response:
        """Send a request; an exception that reaches the server is its 500."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            named["Idempotency-Key"] = key
        request = httpx.Request(method, url, content=body, headers=named)
        try:
            answer = self.send(request)
        except Exception as error:  # noqa: BLE001 - as a server does
            return httpx.Response(500, json={"code": type(error).__name__, "detail": str(error)})
        answer.read()
        return answer

    @abstractmethod
    def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""

    def store(self) -> Once:
        """Receipts, until the door is closed."""
        return self._stack.enter_context(closing(Once(str(self.folder / "receipts.db"))))

    def close(self) -> None:
        """Close what was opened."""
        self._stack.close()

    def run(self) -> None:
        """What every handler does before it answers."""
        self.runs += 1
        if self.raises is not None:
            raise self.raises


class AsgiDoor(Door):
    """`once.Middleware`."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.app = Middleware(self._handle, self.store(), **({"scope": self._whose} | options))

    def _whose(self, incoming: Any) -> object:
        return "all" if self.scope is None else self.scope(incoming)

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:
        self.run()
        headers = [(name.lower().encode(), value.encode()) for name, value in self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})

    def send(self, request: httpx.Request) -> httpx.Response:
        """Call the application."""

        async def sent() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app)) as client:
                return await client.send(request)

        return asyncio.run(sent())


class WsgiDoor(Door):
    """`once.WsgiMiddleware`."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.app = WsgiMiddleware(self._handle, self.store(), **({"scope": self._whose} | options))

    def _whose(self, incoming: Any) -> object:
        return "all" if self.scope is None else self.scope(incoming)

    def _handle(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        self.run()
        start_response(f"{self.status} {HTTPStatus(self.status).phrase}", list(self.headers))
        yield self.body

    def send(self, request: httpx.Request) -> httpx.Response:
        """Call the application."""
        with httpx.Client(transport=httpx.WSGITransport(self.app)) as client:
            return client.send(request)


class DjangoDoor(Door):
    """`once_per_key`, on a database of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        file, self.alias = str(folder / "django.db"), f"door-{next(_numbers)}"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript("CREATE TABLE charges (amount int);" + once.ddl("sqlite"))
        facts = {"ENGINE": "django.db.backends.sqlite3", "NAME": file}
        connections.settings[self.alias] = connections.configure_settings({"default": {}, self.alias: facts})[
            self.alias
        ]
        self._view = once_per_key(scope=self._whose, using=self.alias, **options)(self._handle)

    def _whose(self, request: HttpRequest) -> object:
        return "all" if self.scope is None else self.scope(request)

    def _handle(self, request: HttpRequest) -> HttpResponse:
        self.run()
        response = HttpResponse(self.body, status=self.status)
        del response.headers["Content-Type"]
        for name, value in self.headers:
            response.headers[name] = value
        return response

    def send(self, request: httpx.Request) -> httpx.Response:
        """Call the view."""
        kind = request.headers.get("content-type", "application/octet-stream")
        made = RequestFactory().generic(
            request.method, request.url.raw_path.decode(), request.content, kind, headers=dict(request.headers)
        )
        found = self._view(made)
        return httpx.Response(found.status_code, headers=list(found.items()), stream=httpx.ByteStream(found.content))

    def close(self) -> None:
        """Close the database."""
        connections[self.alias].close()
        del connections[self.alias]
        super().close()


class ProxyDoor(Door):
    """`semel proxy` in front of a service on a real socket. It has no option of a middleware but `on_crash`."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._service = self._stack.enter_context(serving())
        routes = (route_of("POST /charges", options.get("on_crash", "refuse")),)
        self._url = self._stack.enter_context(proxied(self._service.url, self.store(), routes=routes))

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send it over a socket."""
        head = [f"HTTP/1.1 {self.status} Whatever", f"Content-Length: {len(self.body)}"]
        head += [f"{name}: {value}" for name, value in self.headers]
        reply = "\r\n".join([*head, "", ""]).encode() + self.body
        # An exception of a handler is what its server makes of it; a connection that breaks is one here.
        self._service.replies["/charges"] = b"" if self.raises else reply
        try:
            url = request.url.copy_with(host="127.0.0.1", port=httpx.URL(self._url).port)
            return CLIENT.request(request.method, url, content=request.content, headers=request.headers)
        finally:
            self.runs = self._service.effects


DOORS: dict[str, type[Door]] = {"asgi": AsgiDoor, "wsgi": WsgiDoor, "django": DjangoDoor, "proxy": ProxyDoor}
