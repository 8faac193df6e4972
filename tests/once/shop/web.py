"""The shop's web application: an order, its charge, its shipment and its event are stored by one commit.

FastAPI commits the session of a `yield` dependency behind the handler, which is what most applications do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from semel import once
from semel.client import Client, EventOutbox
from semel.once import Once, Outbox
from tests.once.shop.worker import ship

DATABASE = os.environ["SHOP_DATABASE"]
BANK = os.environ["SHOP_BANK"]
engine = create_engine(DATABASE.replace("postgresql:", "postgresql+psycopg:"), pool_pre_ping=True)
events = EventOutbox(DATABASE, Client())


class Order(BaseModel):
    """The body of a request."""

    order: str
    amount: int


def open_session() -> Iterator[Session]:
    """A session that commits when the handler has returned."""
    with Session(engine) as session, session.begin():
        yield session


app = FastAPI()
app.add_middleware(
    once.Middleware,
    store=Once(DATABASE),
    scope=lambda request: request.header("x-user"),
    require=["/orders"],
    lease="3s",
    on_crash="retry",
)


@app.post("/orders", status_code=201)
def place(body: Order, session: Annotated[Session, Depends(open_session, scope="function")]) -> dict[str, object]:
    """Place an order."""
    with once.transaction(session) as attempt:
        if attempt.fresh:
            number = session.execute(
                text("INSERT INTO orders (name) VALUES (:name) RETURNING id"), {"name": body.order}
            ).scalar_one()
            box = Outbox.in_transaction(session)
            box.post(f"{BANK}/charges", json={"amount": body.amount}, key=f"charge-{body.order}")
            ship.with_options(key=f"ship-{body.order}").submit_in(session, order=body.order)
            events.submit(
                "order.placed", {"order": body.order}, partitions="orders", id=f"order-{body.order}", using=session
            )
            attempt.result = {"order": body.order, "number": number}
    result: dict[str, object] = attempt.result
    return result
