"""A payment service that dies where it is told to: `python -m tests.once.payments PORT DATABASE RECEIPTS WAY`.

It charges by a row in its own PostgreSQL. `X-Die` names the point at which the process kills itself:

| point | is |
|---|---|
| unclaimed | before the key is claimed |
| claimed | behind the claim, before the handler |
| begun | inside of the block, before the effect |
| effect | behind the effect, before COMMIT |
| committed | behind COMMIT, before the answer |
| noting | the handler has answered, its answer is not stored |
| noted | its answer is stored |
| answered | the answer is on its way, the client does not have it |
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Literal

import psycopg
import uvicorn

from semel import once
from semel.once import Middleware, Once
from semel.once.claims import Act, ReceiptChange
from semel.once.table import Row

POINTS = ("unclaimed", "claimed", "begun", "effect", "committed", "noting", "noted", "answered")
ACTS = {Act.CLAIM: ("unclaimed", "claimed"), Act.FINISH: ("noting", "noted")}


class Payments:
    """The application. `way` is `transaction` (joined to the request), or `plain` (the middleware alone).

    Behind a comma it says what the middleware does after a crash.
    """

    def __init__(self, database: str, way: str) -> None:
        self._database = database
        self._way = way

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Charge."""
        message = await receive()
        facts = json.loads(message["body"])
        headers = {name: value.decode() for name, value in scope["headers"]}
        point = headers.get(b"x-die", "")
        number = await (self._joined if self._way == "transaction" else self._plain)(facts["amount"], point)
        die_at("committed", point)
        body = json.dumps({"charge": number}).encode()
        start = {"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"application/json")]}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    async def _joined(self, amount: int, point: str) -> int:
        async with await psycopg.AsyncConnection.connect(self._database) as connection:
            async with once.transaction(connection) as attempt:
                if attempt.fresh:
                    attempt.result = await charge(connection, amount, point)
            await connection.commit()
            return int(attempt.result)

    async def _plain(self, amount: int, point: str) -> int:
        async with await psycopg.AsyncConnection.connect(self._database) as connection:
            number = await charge(connection, amount, point)
            await connection.commit()
            return number


async def charge(connection: psycopg.AsyncConnection[Any], amount: int, point: str) -> int:
    """The effect."""
    die_at("begun", point)
    found = await connection.execute("INSERT INTO charges VALUES (%s) RETURNING amount", (amount,))
    row = await found.fetchone()
    die_at("effect", point)
    assert row is not None
    return int(row[0])


def die_at(here: str, point: str) -> None:
    """As a power cut would."""
    if here == point:
        os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """In front of the middleware: what is sent here was stored before. Its receipts die around their changes."""

    def __init__(self, app: Any, receipts: Once) -> None:
        self._app = app
        self._change = receipts.store.change
        self._point = ""
        receipts.store.change = self._changed  # type: ignore[method-assign] # this store alone

    def _changed(self, change: ReceiptChange) -> Sequence[Row]:
        before, behind = ACTS.get(change.act, ("", ""))
        die_at(before or "never", self._point)
        rows = self._change(change)
        die_at(behind or "never", self._point)
        return rows

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on, unless it is time to die."""
        point = self._point = dict(scope["headers"]).get(b"x-die", b"").decode()

        async def passed(message: Any) -> None:
            die_at("answered", point)
            await send(message)

        await self._app(scope, receive, passed)


def main() -> None:
    """Serve until killed."""
    port, database, receipts, way = sys.argv[1:]
    store = Once(receipts)
    way, _, said = way.partition(", ")
    on_crash: Literal["refuse", "retry"] = "retry" if said == "retry" else "refuse"
    app = Middleware(Payments(database, way), store, scope=None, lease="0.5s", wait="20s", on_crash=on_crash)
    uvicorn.run(Dying(app, store), host="127.0.0.1", port=int(port), log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
