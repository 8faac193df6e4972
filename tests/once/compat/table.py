"""The table: which doors are tried with which drivers, on which loop, place and mode.

| door | what a row of it calls |
|---|---|
| transaction | `once.transaction` in a transaction of the driver |
| outbox | `Outbox.in_transaction(...).post` in a transaction of the driver |
| function | `@store.once`, over the application's own engine, pool, URL or file |
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

import uvloop
from psycopg_pool import ConnectionPool

from semel import once
from semel.once import Once, Outbox
from tests.once.compat import drivers
from tests.once.compat.places import count
from tests.once.compat.run import Row, Work, WorkError, charge, is_conflict, new_result, patiently

NOWHERE = "http://127.0.0.1:1/"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class PlacedRow(Row):
    """A row over one database."""

    def __init__(self, place: str, **options: Any) -> None:
        self.place = place
        self.options = options
        self.open()

    @abstractmethod
    def open(self) -> None:
        """Make what a program keeps for its life."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def effects(self, key: str) -> int:
        """How many charges there are."""
        return count(self.place, "charges", key)

    def reconnect(self) -> None:
        """As a program that is started again."""
        self.close()
        self.open()


class TransactionRow(PlacedRow):
    """A block in a transaction of a driver that blocks."""

    def __init__(self, place: str, opener: drivers.Opener, **options: Any) -> None:
        self._opener = opener
        super().__init__(place, **options)

    def open(self) -> None:
        """Open the driver."""
        self._stack = ExitStack()
        self.begin = self._stack.enter_context(self._opener(self.place))

    def close(self) -> None:
        """Close it."""
        self._stack.close()

    def call(self, key: str, work: Work = Work.CHARGE) -> str:
        """The whole transaction, again if the database asks for that."""
        return patiently(lambda: self.once(key, work))

    def once(self, key: str, work: Work) -> str:
        """One transaction."""
        with (
            self.begin() as (target, execute),
            once.transaction(target, key, scope="shop", **self.options) as attempt,
        ):
            if attempt.fresh:
                execute(charge(key, work))
                attempt.result = new_result(key)
                if work is Work.RAISE:
                    raise WorkError
        result: str = attempt.result
        return result


class OutboxRow(TransactionRow):
    """A message in the transaction of its effect."""

    def once(self, key: str, work: Work) -> str:
        """One transaction."""
        with self.begin() as (target, execute):
            posted = Outbox.in_transaction(target).post(NOWHERE, json=1, key=key)
            if posted.fresh:
                execute(charge(key, work))
            if work is Work.RAISE:
                raise WorkError
        return posted.key


class AsyncRow(PlacedRow):
    """A block in a transaction of an asynchronous driver. All racers are tasks of one loop."""

    def __init__(self, place: str, opener: drivers.AsyncOpener, loop: str, **options: Any) -> None:
        self._opener = opener
        self._loop = loop
        super().__init__(place, **options)

    def open(self) -> None:
        """Open the driver in a new loop."""
        self._runner = asyncio.Runner(loop_factory=LOOPS[self._loop])
        self._stack = AsyncExitStack()
        self.begin = self._runner.run(self._entered())

    async def _entered(self) -> drivers.AsyncBegin:
        return await self._stack.enter_async_context(self._opener(self.place))

    def close(self) -> None:
        """Close it."""
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def call(self, key: str, work: Work = Work.CHARGE) -> str:
        """One task."""
        return self._runner.run(self.patiently(key, work))

    def race(self, key: str, racers: int) -> Sequence[str]:
        """Tasks beside one another."""

        async def all_at_once() -> list[str]:
            return await asyncio.gather(*[self.patiently(key, Work.CHARGE) for _ in range(racers)])

        return self._runner.run(all_at_once())

    async def patiently(self, key: str, work: Work) -> str:
        """The whole transaction, again if the database asks for that."""
        while True:
            try:
                return await self.once(key, work)
            except Exception as error:
                if not is_conflict(error):
                    raise
                await asyncio.sleep(0.01)

    async def once(self, key: str, work: Work) -> str:
        """One transaction."""
        async with (
            self.begin() as (target, execute),
            once.transaction(target, key, scope="shop", **self.options) as attempt,
        ):
            if attempt.fresh:
                await execute(charge(key, work))
                attempt.result = new_result(key)
                if work is Work.RAISE:
                    raise WorkError
        result: str = attempt.result
        return result


class AsyncOutboxRow(AsyncRow):
    """A message in the transaction of its effect."""

    async def once(self, key: str, work: Work) -> str:
        """One transaction."""
        async with self.begin() as (target, execute):
            posted = await Outbox.in_transaction(target).post_async(NOWHERE, json=1, key=key)
            if posted.fresh:
                await execute(charge(key, work))
            if work is Work.RAISE:
                raise WorkError
        return posted.key


Store = Callable[[ExitStack, str], Any]
"""Makes what `Once` is given: of the application, so that it closes it."""


def _engine(stack: ExitStack, place: str) -> Any:
    engine = drivers.engine_at(place)
    stack.callback(engine.dispose)
    return engine


def _pool(stack: ExitStack, place: str) -> Any:
    return stack.enter_context(ConnectionPool(place, min_size=1, max_size=4, kwargs=drivers.UNPREPARED))


STORES: dict[str, Store] = {
    "Once(URL)": lambda _, place: place,
    "Once(engine)": _engine,
    "Once(pool)": _pool,
}


class FunctionRow(TransactionRow):
    """A guarded function, whose effect is a transaction of its own."""

    def __init__(self, place: str, opener: drivers.Opener, store: Store) -> None:
        self._store = store
        super().__init__(place, opener)

    def open(self) -> None:
        """Open driver and store."""
        super().open()
        store = Once(self._store(self._stack, self.place))
        self._stack.callback(store.close)
        self._function = store.once(key="key", scope="shop", compare=lambda key, work: key)(self.work)

    def once(self, key: str, work: Work) -> str:
        """One call."""
        return self._function(key, work)

    def work(self, key: str, work: Work) -> str:
        """What is guarded."""
        return patiently(lambda: self.work_once(key, work))

    def work_once(self, key: str, work: Work) -> str:
        """One transaction without a receipt."""
        with self.begin() as (_, execute):
            execute(charge(key, work))
            if work is Work.RAISE:
                raise WorkError
        return new_result(key)


class AsyncFunctionRow(AsyncRow):
    """A guarded coroutine function."""

    def __init__(self, place: str, opener: drivers.AsyncOpener, loop: str, store: Store) -> None:
        self._store = store
        super().__init__(place, opener, loop)

    def open(self) -> None:
        """Open driver and store."""
        super().open()
        self._kept = ExitStack()
        store = Once(self._store(self._kept, self.place))
        self._kept.callback(store.close)
        self._function: Callable[[str, Work], Awaitable[str]] = store.once(
            key="key", scope="shop", compare=lambda key, work: key
        )(self.work)

    def close(self) -> None:
        """Close both."""
        self._kept.close()
        super().close()

    async def once(self, key: str, work: Work) -> str:
        """One call."""
        return await self._function(key, work)

    async def work(self, key: str, work: Work) -> str:
        """What is guarded."""
        async with self.begin() as (_, execute):
            await execute(charge(key, work))
            if work is Work.RAISE:
                raise WorkError
        return new_result(key)


Make = Callable[[str], PlacedRow]
"""A row of a table, for a place."""


def rows_of(openers: dict[str, drivers.Opener], doors: dict[str, type[TransactionRow]]) -> dict[str, Make]:
    """Every door with every driver."""
    return {
        f"{door}, {name}": partial(row, opener=opener)
        for door, row in doors.items()
        for name, opener in openers.items()
    }


def async_rows_of(openers: dict[str, drivers.AsyncOpener], loop: str) -> dict[str, Make]:
    """Every door with every driver, on a loop."""
    doors = {"transaction": AsyncRow, "outbox": AsyncOutboxRow}
    return {
        f"{door}, {name}, {loop}": partial(row, opener=opener, loop=loop)
        for door, row in doors.items()
        for name, opener in openers.items()
    }


BLOCKING: dict[str, type[TransactionRow]] = {"transaction": TransactionRow, "outbox": OutboxRow}
PLAIN = drivers.POSTGRES["psycopg, prepare_threshold=None"]
ASYNC_PLAIN = drivers.ASYNC_POSTGRES["psycopg_pool AsyncConnectionPool"]

ON_POSTGRES: dict[str, Make] = {
    **rows_of(drivers.POSTGRES, BLOCKING),
    "transaction, SQLAlchemy bind=Model": partial(
        TransactionRow, opener=drivers.alchemy_two_databases, bind=drivers.Charge
    ),
    **{f"function, {name}": partial(FunctionRow, opener=PLAIN, store=store) for name, store in STORES.items()},
    **{
        f"function, {name}, {loop}": partial(AsyncFunctionRow, opener=ASYNC_PLAIN, loop=loop, store=store)
        for loop in LOOPS
        for name, store in STORES.items()
    },
    **async_rows_of(drivers.ASYNC_POSTGRES, "asyncio"),
    **async_rows_of(drivers.ASYNC_POSTGRES, "uvloop"),
}
ON_SQLITE: dict[str, Make] = {
    **rows_of(drivers.SQLITE, BLOCKING),
    "function, Once(file)": partial(FunctionRow, opener=drivers.sqlite_plain, store=lambda _, path: f"{path}.once"),
    **async_rows_of(drivers.ASYNC_SQLITE, "asyncio"),
    **async_rows_of(drivers.ASYNC_SQLITE, "uvloop"),
}
PREPARING = {
    "psycopg",
    "psycopg, dict_row",
    "psycopg, autocommit with transaction()",
    "psycopg AsyncConnection, dict_row",
    "asyncpg",
    "asyncpg pool",
    "SQLAlchemy AsyncConnection, asyncpg",
    "SQLAlchemy AsyncSession, asyncpg",
}
"""Drivers that prepare statements unless they are told not to, which a pooler in transaction mode forbids."""


def parts_of(name: str) -> tuple[str, str, str]:
    """The door, the driver or store, and the loop of a row."""
    door, _, rest = name.partition(", ")
    driver, _, loop = rest.rpartition(", ")
    return (door, driver, loop) if loop in LOOPS else (door, rest, "threads")


BEHIND_POOLER = [name for name in ON_POSTGRES if parts_of(name)[1] not in PREPARING]
ON_GEVENT = (
    "transaction, psycopg",
    "transaction, psycopg_pool",
    "transaction, SQLAlchemy Session",
    "outbox, psycopg",
    "function, Once(URL)",
    "function, Once(engine)",
    "function, Once(pool)",
    "transaction, sqlite3",
    "function, Once(file)",
)
"""Rows that are tried with greenlets too."""
