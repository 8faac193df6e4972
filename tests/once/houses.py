"""Every driver that `once.transaction` knows, on a database of its own: it plays a script in a transaction.

A house plays each script on a connection of its own, as a request of a web service does, and says how many charges the
database holds.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg

from semel import once
from tests.once.script import CHARGE, Action, Call, Commit, Effect, Nested, Result

CHARGES = "CREATE TABLE charges (amount integer)"
CHARGE_ONE = "INSERT INTO charges VALUES (1)"
COUNT = "SELECT count(*) FROM charges"
BUSY_SECONDS = 30.0


class Play(NamedTuple):
    """One call: its key and arguments, what its block does, and how the transaction ends."""

    key: object = "key"
    arguments: Any = None
    actions: Sequence[Action] = CHARGE
    options: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it
    isolation: str | None = None
    catches: type[Exception] | None = None
    """An error of the block that the caller catches before it commits the rest."""
    works_before: bool = False
    """Whether the caller's transaction has a charge of its own, before the block."""
    before_commit: Callable[[], object] = lambda: None

    def begin(self, connection: Any) -> Any:
        """The block."""
        return once.transaction(connection, self.key, self.arguments, **({"scope": "shop"} | self.options))

    def nested(self, action: Nested) -> Play:
        """The play of a block inside."""
        return Play(action.key, None, action.actions, self.options)


class House(ABC):
    """A driver and its database."""

    is_postgres = False
    can_end_inside = True
    """Whether a block can commit; Django forbids it."""

    def __init__(self, place: str) -> None:
        self.place = place

    @abstractmethod
    def play(self, play: Play) -> once.Attempt:
        """Play it on a connection of its own, and commit."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look from outside."""

    def charges(self) -> int:
        """How many there are."""
        return int(self.query(COUNT)[0][0])

    def receipts(self) -> int:
        """How many there are."""
        return int(self.query("SELECT count(*) FROM semel_once")[0][0])


class PostgresHouse(House):
    """On PostgreSQL: a schema of a database."""

    is_postgres = True

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look from outside."""
        with psycopg.connect(self.place, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def build(self) -> None:
        """Make the tables."""
        with psycopg.connect(self.place, autocommit=True) as connection:
            connection.execute(CHARGES.encode())
            connection.execute(once.ddl("postgresql").encode())


class SqliteHouse(House):
    """On SQLite: a file."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look from outside."""
        connection = sqlite3.connect(self.place, timeout=BUSY_SECONDS)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def build(self) -> None:
        """Make the tables."""
        connection = sqlite3.connect(self.place)
        connection.executescript("PRAGMA journal_mode = WAL;" + CHARGES + ";" + once.ddl("sqlite"))
        connection.close()


class Stage:
    """A connection with its verbs, for a driver that blocks."""

    def __init__(
        self, target: Any, effect: Callable[[], object], commit: Callable[[], object], rollback: Callable[[], object]
    ) -> None:
        self.target = target
        self.effect, self.commit, self.rollback = effect, commit, rollback

    def play(self, play: Play) -> once.Attempt:
        """A block, and the end of its transaction."""
        if play.works_before:
            self.effect()
        try:
            attempt = self._block(play)
        except BaseException as error:
            if play.catches is None or not isinstance(error, play.catches):
                self.rollback()
                raise
            self.commit()
            raise
        play.before_commit()
        self.commit()
        return attempt

    def _block(self, play: Play) -> once.Attempt:
        block: once.Transaction[Any] = play.begin(self.target)
        with block as attempt:
            if attempt.fresh:
                for action in play.actions:
                    self._act(action, attempt, play)
        return attempt

    def _act(self, action: Action, attempt: once.Attempt, play: Play) -> None:
        if isinstance(action, Nested):
            with suppress(*[action.catches] if action.catches else []):
                self._block(play.nested(action))
        elif isinstance(action, Effect):
            self.effect()
        elif isinstance(action, Result):
            attempt.result = action.value
        elif isinstance(action, Call):
            action.function()
        else:
            (self.commit if isinstance(action, Commit) else self.rollback)()


class AsyncStage:
    """The same for one that does not."""

    def __init__(
        self, target: Any, effect: Callable[[], Any], commit: Callable[[], Any], rollback: Callable[[], Any]
    ) -> None:
        self.target = target
        self.effect, self.commit, self.rollback = effect, commit, rollback

    async def play(self, play: Play) -> once.Attempt:
        """A block, and the end of its transaction."""
        if play.works_before:
            await self.effect()
        try:
            attempt = await self._block(play)
        except BaseException as error:
            if play.catches is None or not isinstance(error, play.catches):
                await self.rollback()
                raise
            await self.commit()
            raise
        play.before_commit()
        await self.commit()
        return attempt

    async def _block(self, play: Play) -> once.Attempt:
        block: once.AsyncTransaction[Any] = play.begin(self.target)
        async with block as attempt:
            if attempt.fresh:
                for action in play.actions:
                    await self._act(action, attempt, play)
        return attempt

    async def _act(self, action: Action, attempt: once.Attempt, play: Play) -> None:
        if isinstance(action, Nested):
            with suppress(*[action.catches] if action.catches else []):
                await self._block(play.nested(action))
        elif isinstance(action, Effect):
            await self.effect()
        elif isinstance(action, Result):
            attempt.result = action.value
        elif isinstance(action, Call):
            await asyncio.to_thread(action.function)
        else:
            await (self.commit if isinstance(action, Commit) else self.rollback)()
