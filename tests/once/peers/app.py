"""One application with one handler, kept from charging twice by one candidate; it dies where it is told to.

`python -m tests.once.peers.app JSON`; the schedule starts it, kills it and counts. The handler writes a row in its own
PostgreSQL and calls another service, in one transaction. The process kills itself (-9) at one point:

| point | is |
|---|---|
| received | the request has arrived, and nothing has looked at it |
| begun | the handler has begun, its transaction is open |
| written | its row is written, and not committed |
| called | the other service has answered, and the row is not committed |
| committed | COMMIT has returned |
| answering | the handler has made its answer, and nothing around it has seen it |
| sending | everything around the handler lets the last piece of the answer go, and the client does not have it |
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import psycopg

POINTS = ("received", "begun", "written", "called", "committed", "answering", "sending")
CHARGES = "CREATE TABLE charges (id bigserial PRIMARY KEY, key text NOT NULL, amount int NOT NULL)"
SECONDS = 20

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Charged = dict[str, int]


class BusyError(Exception):
    """The candidate says that a call with this key is running."""


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    key: str
    amount: int


@dataclass(frozen=True)
class Shop:
    """Where everything is, and where to die."""

    candidate: str
    port: int
    database: str
    redis: int
    counter: str
    die: str = ""

    def die_at(self, here: str) -> None:
        """End the process as a power cut would, if this is the point."""
        if here == self.die:
            os.kill(os.getpid(), signal.SIGKILL)

    def charge(self, connection: psycopg.Connection[Any], order: Order) -> Charged:
        """The handler, the same for every candidate: a row, and a call to another service."""
        self.die_at("begun")
        values = (order.key, order.amount)
        row = connection.execute("INSERT INTO charges (key, amount) VALUES (%s, %s) RETURNING id", values).fetchone()
        self.die_at("written")
        self._call(order)
        self.die_at("called")
        assert row is not None
        return {"charge": int(row[0])}

    def plainly(self, order: Order) -> Charged:
        """The handler in a transaction of its own, which knows nothing of keys."""
        with psycopg.connect(self.database) as connection:
            charged = self.charge(connection, order)
            connection.commit()
            self.die_at("committed")
            return charged

    def _call(self, order: Order) -> None:
        headers = {"Idempotency-Key": order.key}
        request = urllib.request.Request(f"{self.counter}/calls", str(order.amount).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass


def web(shop: Shop, work: Callable[[Order], Charged]) -> App:
    """An application whose only route does this work."""
    from starlette.applications import Starlette  # noqa: PLC0415 - a candidate that brings its own server has none
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import JSONResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    async def post(request: Request) -> JSONResponse:
        order = Order(request.headers["idempotency-key"], (await request.json())["amount"])
        try:
            charged = await asyncio.to_thread(work, order)
        except BusyError:
            return JSONResponse({"code": "in_flight"}, 409)
        return JSONResponse(charged, 201)

    return dying(shop, Starlette(routes=[Route("/charges", post, methods=["POST"])]), "", "answering")


def dying(shop: Shop, app: App, before: str, behind: str) -> App:
    """An application that dies before it is asked, or when it sends the last piece of its answer."""

    async def wrapped(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                shop.die_at(behind)
            await send(message)

        if scope["type"] == "http" and scope["method"] == "POST":
            shop.die_at(before or "never")
            await app(scope, receive, sent)
        else:
            await app(scope, receive, send)

    return wrapped


def main() -> None:
    """Serve until killed."""
    import uvicorn  # noqa: PLC0415

    from tests.once.peers.candidates import BUILDERS  # noqa: PLC0415 - it builds on this module

    shop = Shop(**json.loads(sys.argv[1]))
    app = dying(shop, BUILDERS[shop.candidate](shop), "received", "sending")
    uvicorn.run(app, host="127.0.0.1", port=shop.port, log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
