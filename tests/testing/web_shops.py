"""Web applications that take an order once, right and wrong, on SQLite and PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from fastapi import Depends, FastAPI, Request
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from semel import Once, once


class Base(DeclarativeBase):
    """The tables of the shop."""


class WebOrder(Base):
    """An order."""

    __tablename__ = "web_orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class WebShop:
    """A database, a store of receipts and an application over both."""

    def __init__(self, url: str, receipts: str) -> None:
        self.engine = sqlalchemy.create_engine(url, poolclass=NullPool)
        Base.metadata.create_all(self.engine)
        once.migrate(self.engine)
        self.store = Once(receipts)
        self.app = FastAPI()

    def count(self) -> int:
        """The orders so far."""
        with Session(self.engine) as session:
            return int(session.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(WebOrder)) or 0)

    def protect(self, **options: Any) -> None:
        """Put the middleware in front."""
        self.app.add_middleware(once.Middleware, store=self.store, scope=None, **options)

    def close(self) -> None:
        """Close both."""
        self.store.close()
        self.engine.dispose()


Build = Callable[[WebShop], None]


def session_of(shop: WebShop) -> Callable[[], Iterator[Session]]:
    """A dependency that commits when the request is over."""

    def session() -> Iterator[Session]:
        with Session(shop.engine) as found, found.begin():
            yield found

    return session


def joined(shop: WebShop) -> None:
    """Right: the handler commits a block that has joined the request."""

    @shop.app.post("/orders")
    def order() -> dict[str, Any]:
        with Session(shop.engine) as session:
            with once.transaction(session) as attempt:
                if attempt.fresh:
                    session.add(found := WebOrder())
                    session.flush()
                    attempt.result = found.id
            session.commit()
            return {"order": attempt.result}

    shop.protect()


def joined_dependency(shop: WebShop) -> None:
    """Right: the session of a `yield` dependency commits after the handler."""
    begun = Depends(session_of(shop))

    @shop.app.post("/orders")
    def order(session: Session = begun) -> dict[str, Any]:
        with once.transaction(session) as attempt:
            if attempt.fresh:
                session.add(found := WebOrder())
                session.flush()
                attempt.result = found.id
        return {"order": attempt.result}

    shop.protect()


def honest(shop: WebShop) -> None:
    """Right: without a joined block, a crash leaves an unknown outcome."""

    @shop.app.post("/orders")
    def order() -> dict[str, int]:
        with Session(shop.engine) as session:
            session.add(found := WebOrder())
            session.commit()
            return {"order": found.id}

    shop.protect()


def upload(shop: WebShop) -> None:
    """Right: a form with a file."""

    @shop.app.post("/orders")
    async def order(request: Request) -> dict[str, int]:
        size = len(await request.body())
        with Session(shop.engine) as session:
            with once.transaction(session) as attempt:
                if attempt.fresh:
                    session.add(WebOrder())
                    attempt.result = {"is_empty": size == 0}
            session.commit()
        return dict(attempt.result)

    shop.protect()


def unprotected(shop: WebShop) -> None:
    """Wrong: no middleware."""
    honest(shop)
    shop.app.user_middleware.clear()


def two_blocks(shop: WebShop) -> None:
    """Wrong: a block for each line, all under the key of the request."""

    @shop.app.post("/orders")
    def order() -> dict[str, Any]:
        with Session(shop.engine) as session:
            for _ in range(2):
                with once.transaction(session) as attempt:
                    if attempt.fresh:
                        session.add(WebOrder())
            session.commit()
        return {}

    shop.protect()


def answers_before_its_commit(shop: WebShop) -> None:
    """Wrong: the key is the request's, but passed by hand, so nothing waits for the commit of the dependency."""
    begun = Depends(session_of(shop))

    @shop.app.post("/orders")
    def order(request: Request, session: Session = begun) -> dict[str, Any]:
        with once.transaction(session, request.headers["idempotency-key"], scope=None) as attempt:
            if attempt.fresh:
                session.add(WebOrder())
        return {}

    shop.protect()


def releases_after_failures(shop: WebShop) -> None:
    """Wrong: a failure behind the effect lets the retry run again."""
    answers = itertools.count(1)

    @shop.app.post("/orders")
    def order() -> dict[str, int]:
        with Session(shop.engine) as session:
            session.add(WebOrder())
            session.commit()
            session.add(WebOrder(id=10_000 + next(answers)))
            session.commit()
            session.execute(sqlalchemy.delete(WebOrder).where(WebOrder.id > 10_000))
            session.commit()
        return {}

    shop.protect(on_error="release")


def compares_bytes(shop: WebShop) -> None:
    """Wrong: a retry that is written differently is another request."""

    @shop.app.post("/orders")
    def order() -> dict[str, int]:
        with Session(shop.engine) as session:
            session.add(WebOrder())
            session.commit()
        return {}

    shop.protect(compare=lambda incoming, body: body)


def web_shop(build: Build, url: str, folder: Path) -> WebShop:
    """A shop of one kind."""
    shop = WebShop(url, str(folder / "receipts.db"))
    build(shop)
    return shop
