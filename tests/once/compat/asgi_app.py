"""FastAPI behind the middleware: what people write, a handler for each way in which a session is made and committed.

The effect and its key are one transaction. Headers say what a handler does, because a retry may differ in them:
`X-Work` is the work of a call, `X-Block` how many seconds it then blocks its event loop, or its thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Annotated, Any

import asyncpg
from fastapi import Depends, FastAPI, Header
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from semel import once
from semel.once import Once
from tests.once.compat.drivers import alchemy_address, engine_at
from tests.once.compat.places import note_run
from tests.once.compat.run import Work, WorkError, charge, new_result

PLACE = os.environ["COMPAT_PLACE"]
LEASE = os.environ["COMPAT_LEASE"]
engine = engine_at(PLACE)
store = Once(PLACE if PLACE.startswith("postgresql") else f"{PLACE}.once")
app = FastAPI()
app.add_middleware(once.Middleware, store=store, scope=None, require=["/"], lease=LEASE)


class Ask:
    """What a request asks for."""

    def __init__(
        self,
        idempotency_key: Annotated[str, Header()],
        x_work: Annotated[str, Header()] = Work.CHARGE,
        x_block: Annotated[float, Header()] = 0,
    ) -> None:
        self.key, self.work, self.block = idempotency_key, Work(x_work), x_block

    @property
    def statement(self) -> str:
        """The effect."""
        return charge(self.key, self.work)

    def result(self) -> str:
        """What the block returns, behind its effect."""
        note_run(PLACE, self.key)
        time.sleep(self.block)
        if self.work is Work.RAISE:
            raise WorkError
        return new_result(self.key)


Asked = Annotated[Ask, Depends()]


def a_session() -> Iterator[Session]:
    """A session that commits when its scope ends."""
    with Session(engine) as session, session.begin():
        yield session


@cache
def async_engine() -> Any:
    """Of this process and its loop."""
    return create_async_engine(alchemy_address(PLACE, "asyncpg"))


async def an_async_session() -> AsyncIterator[AsyncSession]:
    """An asynchronous session that commits when its scope ends."""
    async with AsyncSession(async_engine()) as session, session.begin():
        yield session


def charge_in(session: Session, ask: Ask) -> str:
    """The block of a handler that blocks."""
    with once.transaction(session) as attempt:
        if attempt.fresh:
            session.execute(text(ask.statement))
            attempt.result = ask.result()
    result: str = attempt.result
    return result


async def charge_in_async(session: AsyncSession, ask: Ask) -> str:
    """The block of a coroutine."""
    async with once.transaction(session) as attempt:
        if attempt.fresh:
            await session.execute(text(ask.statement))
            attempt.result = ask.result()
    result: str = attempt.result
    return result


@app.post("/function-scope")
def function_scope(session: Annotated[Session, Depends(a_session, scope="function")], ask: Asked) -> str:
    """The session commits before the answer is sent."""
    return charge_in(session, ask)


@app.post("/request-scope")
def request_scope(session: Annotated[Session, Depends(a_session, scope="request")], ask: Asked) -> str:
    """The session commits behind the answer."""
    return charge_in(session, ask)


@app.post("/async-function-scope")
async def async_function_scope(
    session: Annotated[AsyncSession, Depends(an_async_session, scope="function")], ask: Asked
) -> str:
    """The same for coroutines. What blocks here blocks the event loop."""
    return await charge_in_async(session, ask)


@app.post("/async-request-scope")
async def async_request_scope(
    session: Annotated[AsyncSession, Depends(an_async_session, scope="request")], ask: Asked
) -> str:
    """The same, behind the answer."""
    return await charge_in_async(session, ask)


@app.post("/asyncpg")
async def by_asyncpg(ask: Asked) -> str:
    """A connection of the driver, which the handler commits itself."""
    connection = await asyncpg.connect(PLACE)
    try:
        async with connection.transaction(), once.transaction(connection) as attempt:
            if attempt.fresh:
                await connection.execute(ask.statement)
                attempt.result = ask.result()
    finally:
        await connection.close()
    result: str = attempt.result
    return result
