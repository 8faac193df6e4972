"""A key names one block: a second block without a name is refused, in the first request and in each retry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from semel import once
from semel.once import InvalidKey, SecondBlock
from tests.once import joined_world as worlds
from tests.once.joined_world import BrokenHandlerError, Killed, Reply, World, done, entered

Play = Callable[["Handler"], Awaitable[object]]
REFUSED = Reply(0, "")


@pytest.fixture(params=[worlds.SessionAsgi, worlds.AsyncSessionSqlite, worlds.AsyncPsycopgAsgi, worlds.AsyncpgAsgi])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each kind of driver."""
    made = request.param(tmp_path, str(tmp_path / "receipts.db"))
    made.begin()
    yield made
    made.close()


class Handler:
    """One run of a handler, with a connection of its own."""

    def __init__(self, world: World, target: Any) -> None:
        self._world, self._target = world, target

    async def block(self, result: object, *, raises: bool = False, commits: bool = False, **options: Any) -> Any:
        """A block that charges once; its result."""
        async with entered(once.transaction(self._target, **options)) as attempt:
            if attempt.fresh:
                await done(self._world.run(self._target, self._world.charge))
                attempt.result = result
            if raises:
                raise BrokenHandlerError
        if commits:
            await self.commit()
        return attempt.result

    async def commit(self) -> None:
        """Commit, and begin anew where the driver does not by itself."""
        await done(self._world.commit(self._target))

    async def rollback(self) -> None:
        """Roll back."""
        await done(self._world.rollback(self._target))

    async def elsewhere(self, result: object, *, commits: bool = True) -> Any:
        """A block on another connection."""
        target = await done(self._world.connect())
        try:
            return await Handler(self._world, target).block(result, commits=commits)
        finally:
            await done(target.close())


def plays(world: World, play: Play) -> list[BaseException]:
    """Let the handler of a world play. Returns a list that gets what it raised."""
    raised: list[BaseException] = []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        target = await done(world.connect())
        handler = Handler(world, target)
        try:
            body = str(await play(handler)).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
        except Killed:
            world.die()
            raise
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            await done(target.close())

    world.handle = handle  # type: ignore[method-assign]
    return raised


def test_a_loop_without_names_is_refused_and_leaves_nothing(world: World) -> None:
    async def play(handler: Handler) -> object:
        found = [await handler.block(line) for line in range(3)]
        await handler.commit()
        return found

    raised = plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(2)] == [REFUSED] * 2
    assert [type(error) for error in raised] == [SecondBlock] * 2
    assert 'step="shipment"' in str(raised[0])
    assert world.rows() == []


def test_a_loop_with_names_takes_effect_once_for_each(world: World) -> None:
    async def play(handler: Handler) -> object:
        found = [await handler.block(line, step=f"line {line}") for line in range(3)]
        await handler.commit()
        return found

    plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "[0, 1, 2]")] * 2
    assert world.rows() == [1, 1, 1]


def test_a_second_block_behind_a_commit_is_refused_in_every_retry(world: World) -> None:
    async def play(handler: Handler) -> object:
        return [await handler.elsewhere("first"), await handler.elsewhere("second")]

    raised = plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(3)] == [REFUSED] * 3
    assert [type(error) for error in raised] == [SecondBlock] * 3
    assert world.rows() == [1]


def test_a_replay_that_raised_is_still_the_first_block(world: World) -> None:
    async def play(handler: Handler) -> object:
        if world.number == 1:
            await handler.elsewhere("first")
            raise Killed
        try:
            await handler.block("first", raises=True)
        except BrokenHandlerError:
            return await handler.block("second", commits=True)
        raise AssertionError

    raised = plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(2)] == [REFUSED] * 2
    assert [type(error) for error in raised] == [SecondBlock]
    assert world.rows() == [1]


def test_a_block_that_raised_may_be_run_again(world: World) -> None:
    async def play(handler: Handler) -> object:
        try:
            await handler.block("first", raises=True)
        except BrokenHandlerError:
            return await handler.block("second", commits=True)
        raise AssertionError

    plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "second")] * 2
    assert world.rows() == [1]


def test_a_block_behind_a_rollback_is_fresh_again(world: World) -> None:
    async def play(handler: Handler) -> object:
        await handler.block("first")
        await handler.rollback()
        return await handler.elsewhere("second")

    plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "second")] * 2
    assert world.rows() == [1]


def test_a_block_inside_of_a_block_is_refused(world: World) -> None:
    async def play(handler: Handler) -> object:
        async with entered(once.transaction(handler._target)):
            return await handler.block("inside")

    raised = plays(world, play)
    assert world.attempt("", "refuse") == REFUSED
    assert [type(error) for error in raised] == [SecondBlock]
    assert world.rows() == []


@pytest.mark.parametrize("started", ["gather", "create_task", "to_thread"])
def test_blocks_at_the_same_time_are_refused(world: World, started: str) -> None:
    async def play(handler: Handler) -> object:
        if started == "gather":
            return await asyncio.gather(handler.elsewhere(1), handler.elsewhere(2), return_exceptions=True)
        if started == "create_task":
            task = asyncio.create_task(handler.elsewhere(1))
            return await asyncio.gather(handler.elsewhere(2), task, return_exceptions=True)
        run = lambda: asyncio.run(handler.elsewhere(1))  # noqa: E731
        first = await asyncio.to_thread(run)
        return [first, *await asyncio.gather(handler.elsewhere(2), return_exceptions=True)]

    told: list[object] = []

    async def checked(handler: Handler) -> object:
        found = await play(handler)
        assert isinstance(found, list)
        told.append(sorted(type(one).__name__ for one in found))
        return "done"

    plays(world, checked)
    assert world.attempt("", "refuse") == Reply(200, "done")
    assert told == [["SecondBlock", "int"]]
    assert world.rows() == [1]


def test_a_task_that_outlives_its_request_cannot_join_it(world: World) -> None:
    found: list[object] = []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        target = await done(world.connect())
        try:
            await Handler(world, target).block("first", commits=True)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first"})
            try:
                await Handler(world, target).elsewhere("late")
            except InvalidKey as error:
                found.append(str(error))
        finally:
            await done(target.close())

    world.handle = handle  # type: ignore[method-assign]
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "first")] * 2
    assert found == ["The request has been answered: pass a key to once.transaction."]
    assert world.rows() == [1]


def test_a_request_that_died_between_two_named_blocks_runs_the_second_one(world: World) -> None:
    async def play(handler: Handler) -> object:
        found = [await handler.elsewhere("order")]
        if world.number == 1:
            raise Killed
        return [*found, await handler.block("shipment", commits=True, step="shipment")]

    plays(world, play)
    assert world.attempt("", "refuse") == Reply()
    assert [world.attempt("", "refuse") for _ in range(2)] == [Reply(200, "['order', 'shipment']")] * 2
    assert world.rows() == [1, 2]


def test_a_loop_is_refused_behind_wsgi_too(tmp_path: Path) -> None:
    world = worlds.PsycopgWsgi(tmp_path, "")
    world.begin()
    raised: list[BaseException] = []

    def handle(environ: Any, start_response: Any) -> list[bytes]:
        with world.connect() as connection:
            try:
                for _ in range(3):
                    with once.transaction(connection) as attempt:
                        world.run(connection, world.charge)
                        attempt.result = 1
            except SecondBlock as error:
                raised.append(error)
                raise
        raise AssertionError

    world.handle_blocking = handle  # type: ignore[assignment,method-assign]
    assert world.attempt("", "refuse") == REFUSED
    assert len(raised) == 1
    assert world.rows() == []
    world.close()


@pytest.mark.parametrize("options", [{"arguments": 1}, {"scope": None}, {"scope": "a"}, {"keep": "1h"}])
def test_a_block_without_a_key_takes_nothing_else_from_its_caller(tmp_path: Path, options: dict[str, Any]) -> None:
    world = worlds.Sqlite3Asgi(tmp_path, "")
    world.begin()

    async def play(handler: Handler) -> object:
        return await handler.block("first", **options)

    raised = plays(world, play)
    assert world.attempt("", "refuse") == REFUSED
    assert [str(error).partition(":")[0] for error in raised] == [
        "A block without a key has the scope, the body and the retention of its request"
    ]
    with pytest.raises(InvalidKey, match="needs a key"):
        once.transaction(world.connect())
    with pytest.raises(InvalidKey, match="step= names a block of a request"):
        once.transaction(world.connect(), "k", scope=None, step="a")
    world.close()


@pytest.mark.parametrize("kind", [worlds.Sqlite3Asgi, worlds.SessionAsgi, worlds.AsyncSessionSqlite, worlds.ApswAsgi])
def test_a_second_block_in_another_database_needs_a_name_in_the_first_request(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    world, beside = kind(tmp_path, ""), kind(tmp_path / "beside", "")
    for step, reply in ((None, REFUSED), ("beside", Reply(200, "['first', 'second']"))):
        world.begin()
        beside.key = world.key

        async def play(handler: Handler, step: str | None = step) -> object:
            first = await handler.elsewhere("first")
            target = await done(beside.connect())
            try:
                return [first, await Handler(beside, target).block("second", commits=True, step=step)]
            finally:
                await done(target.close())

        raised = plays(world, play)
        assert [world.attempt("", "refuse") for _ in range(2)] == [reply] * 2
        assert [type(error) for error in raised] == [SecondBlock] * (2 if step is None else 0)
        assert (len(world.rows()), len(beside.rows())) == (1, 0 if step is None else 1)
    world.close()
    beside.close()


def test_a_second_block_with_a_table_of_its_own_needs_a_name_too(world: World) -> None:
    if isinstance(world, worlds.SqliteWorld):
        world.change(once.ddl("sqlite", "other_receipts"))
    else:
        world.change(once.ddl("postgresql", "other_receipts"))

    async def play(handler: Handler) -> object:
        return [await handler.elsewhere("first"), await handler.block("second", commits=True, table="other_receipts")]

    raised = plays(world, play)
    assert [world.attempt("", "refuse") for _ in range(2)] == [REFUSED] * 2
    assert [type(error) for error in raised] == [SecondBlock] * 2
    assert world.rows() == [1]


def test_of_two_named_blocks_of_which_one_was_rolled_back_the_retry_runs_that_one(world: World) -> None:
    async def play(handler: Handler) -> object:
        found = [await handler.elsewhere("order")]
        found.append(await handler.block(f"shipment {world.number}", step="shipment"))
        await (handler.rollback if world.number == 1 else handler.commit)()
        return found

    plays(world, play)
    replies = [world.attempt("", "refuse") for _ in range(3)]
    assert replies == [
        Reply(200, "['order', 'shipment 1']"),
        Reply(200, "['order', 'shipment 2']"),
        Reply(200, "['order', 'shipment 2']"),
    ]
    assert world.rows() == [1, 2]
