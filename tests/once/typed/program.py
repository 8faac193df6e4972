"""A program as a user writes it: checked by mypy and Pyright, both strict, and never run."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import assert_type

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession

import semel
from semel import Once, OnceError, Outbox, once
from semel.once.fastapi import Key
from semel.testing import FrozenClock, IdempotencyReport, assert_idempotent

assert_type(semel.__version__, str)


@dataclass
class Order:
    """What is charged."""

    id: int
    amount: int


def place_order(connection: sqlite3.Connection, key: str, order: Order) -> int:
    """`once.transaction`, for a connection that blocks."""
    with once.transaction(connection, key, order, scope="shop", keep="7d", wait=2) as attempt:
        assert_type(attempt, once.Attempt)
        if attempt.fresh:
            attempt.result = order.amount
    assert_type(attempt.replayed, bool)
    assert_type(attempt.created_at, datetime)
    return int(attempt.result)


async def place_order_async(session: AsyncSession, key: str) -> str:
    """And for one that does not."""
    async with once.transaction(session, key, scope=None) as attempt:
        assert_type(attempt, once.Attempt)
        attempt.result = attempt.key
    return str(attempt.result)


store = Once("app.db")
assert_type(Once.memory(clock=FrozenClock()), Once)


def find_charge(order: Order, *, note: str = "") -> once.Happened | None:
    """What `ask` is given."""
    return once.Happened({"id": order.id, "note": note})


def key_of(order: Order, *, note: str = "") -> str:
    """What `key` is given; Pyright's strict mode knows no type for the parameters of a lambda here."""
    return f"charge:{order.id}"


@store.once(key=key_of, lease="60s", on_crash="ask", ask=find_charge)
def charge(order: Order, *, note: str = "") -> dict[str, int]:
    """A function that reaches outside."""
    assert_type(once.current_key(), str)
    return {"charged": order.amount, "note": len(note)}


@store.once(key=key_of, in_flight="raise", remember=(ValueError,))
async def charge_async(order: Order) -> list[str]:
    """A coroutine function."""
    return [str(order.id)]


async def use_functions() -> None:
    """Signatures and results are those of the functions."""
    order = Order(7, 5)
    assert_type(charge(order, note="tea"), dict[str, int])
    assert_type(await charge_async(order), list[str])
    found = charge.inspect("charge:7")
    assert_type(found, once.Inspection | None)
    if found is not None and found.state == "unknown":
        charge.resolve("charge:7", result={"charged": 5})
    assert_type(charge.forget("charge:7"), bool)


app = FastAPI()
app.add_middleware(once.Middleware, store=store, scope=lambda request: request.header("X-User"), wait="10s")
wrapped = once.Middleware(app, store, scope=None, methods={"POST"}, on_crash="retry")


@app.post("/orders")
def order_of_web(key: Key) -> str:
    """The key of a request is a text."""
    assert_type(key, str)
    return key


async def send(connection: sqlite3.Connection) -> None:
    """The outbox."""
    box = Outbox("outbox.db", keep="7d", concurrency=4)
    secret = once.EnvSecret("PAY_TOKEN", "Bearer ")
    posted = box.post("https://pay.example", json={"amount": 5}, headers={"Authorization": secret}, key="charge-7")
    assert_type(posted, once.Posted)
    assert_type(posted.fresh, bool)
    assert_type(await box.flush(timeout=10), once.Flushed)
    assert_type(box.state("charge-7"), once.MessageState | None)
    assert_type([message.key for message in box.messages("poison")], list[str])
    assert_type(Outbox.in_transaction(connection), once.TransactionOutbox)
    assert_type(once.outbox_ddl("sqlite") + once.ddl("postgresql"), str)


def test_it() -> None:
    """`semel.testing`."""
    report = assert_idempotent(
        lambda key: place_order_async(AsyncSession(), key), effects=lambda: 1, schedules=["duplicate"]
    )
    assert_type(report, IdempotencyReport)
    try:
        charge(Order(7, 5))
    except once.OutcomeUnknown as unknown:
        assert_type(unknown.key, str)
    except OnceError:
        raise
