"""Payments over HTTP: if a client repeats a request, the card is still charged only once. In two commands:

pip install semel fastapi uvicorn sqlalchemy
uvicorn fastapi_payments:app

Then run this twice; you may kill the server in between:

curl http://127.0.0.1:8000/payments -H 'Idempotency-Key: order-7' -H 'X-User: ada' --json '{"amount": 5}'

Payments are stored in shop.db, or in the database of DATABASE_URL: postgresql+psycopg://user@host/database.
"""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from semel import once
from semel.once.fastapi import Key

TRIES = 10
engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///shop.db"))


class Base(DeclarativeBase):
    """The tables of the shop."""


class Payment(Base):
    """A payment that was charged."""

    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[int]


class Order(BaseModel):
    """The body of a request."""

    amount: int


def make_tables() -> None:
    """Create the shop's table and the table of receipts; in your project, a migration does this."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        for statement in once.ddl(engine.dialect.name).split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)


make_tables()
app = FastAPI()
User = Annotated[str, Header(alias="X-User")]
"""A stand-in for your authentication: each user has a separate set of keys."""


@app.post("/payments", status_code=201)
def pay(order: Order, key: Key, user: User, response: Response) -> dict[str, int]:
    """Charge once for each key of a user. One commit stores the payment and its receipt."""
    for _ in range(TRIES):
        try:
            with Session(engine) as session:
                with once.transaction(session, key, order, scope=user, wait="10s") as attempt:
                    if attempt.fresh:
                        payment = Payment(customer=user, amount=order.amount)
                        session.add(payment)
                        session.flush()
                        attempt.result = {"payment": payment.id, "amount": order.amount}
                session.commit()
        except once.RunAgain:  # another transaction committed first
            continue
        if attempt.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        result: dict[str, int] = attempt.result
        return result
    raise once.InFlight(key)


@app.get("/payments")
def payments(user: User) -> list[dict[str, int]]:
    """The payments of a user."""
    with Session(engine) as session:
        found = session.scalars(select(Payment).where(Payment.customer == user).order_by(Payment.id))
        return [{"payment": one.id, "amount": one.amount} for one in found]


@app.exception_handler(once.KeyMismatch)
def mismatch(request: Request, error: once.KeyMismatch) -> JSONResponse:
    """The key was used for another order."""
    return JSONResponse({"detail": str(error)}, 422)


@app.exception_handler(once.InFlight)
def in_flight(request: Request, error: once.InFlight) -> JSONResponse:
    """The first request is still running."""
    return JSONResponse({"detail": str(error)}, 409, headers={"Retry-After": f"{error.retry_after:.0f}"})
