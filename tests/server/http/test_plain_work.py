"""The coroutine of an answer: without a task while it waits once, in a task that the host knows from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from semel.server.http.answer import Answer, BodyWriter, ClientGoneError, StreamedAnswer
from semel.server.thread_pool import APART_BYTES
from tests.server.http.corpus import head
from tests.server.http.test_exchange import GET, Connected, run

OK = Answer(200, [])


Work = Callable[[asyncio.Future[Any]], Coroutine[Any, Any, Any]]


def proceeding(work: Work, end: Callable[[Connected, asyncio.Future[Any]], object]) -> tuple[list[int], bool, int]:
    """Run work that waits for a future, then end the future, and return what became of the connection."""
    seen: list[tuple[list[int], bool, int]] = []

    async def test(one: Connected) -> None:
        await one.send(GET)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        one.requests[0].proceed(work(future))
        await one.settle()
        assert (one.pipe.written, one.protocol.host.tasks) == ([], set())
        end(one, future)
        await one.settle()
        seen.append((one.pipe.statuses, one.pipe.is_closed, len(one.application.errors)))

    run(test)
    return seen[0]


async def answer_of(future: asyncio.Future[Any]) -> Answer:
    """Wait once."""
    return Answer(await future, [])


def test_work_that_waits_once_has_no_task_and_replies_when_the_future_is_done() -> None:
    assert proceeding(answer_of, lambda one, future: future.set_result(201)) == ([201], False, 0)


def test_work_that_does_not_wait_replies_at_once() -> None:
    async def work() -> Answer:
        return OK

    async def test(one: Connected) -> None:
        await one.send(GET)
        one.requests[0].proceed(work())
        assert (one.pipe.statuses, one.protocol.host.tasks) == ([200], set())

    run(test)


def test_an_exception_of_the_future_reaches_the_work_and_then_the_application() -> None:
    def fail(one: Connected, future: asyncio.Future[Any]) -> None:
        future.set_exception(ValueError())

    assert proceeding(answer_of, fail) == ([500], False, 1)


@pytest.mark.parametrize("error", [ClientGoneError, asyncio.CancelledError])
def test_work_that_ends_without_an_answer_ends_the_connection(error: type[BaseException]) -> None:
    async def work(future: asyncio.Future[Any]) -> Answer:
        await future
        raise error

    assert proceeding(work, lambda one, future: future.set_result(None)) == ([], True, 0)


def test_a_cancelled_future_ends_the_connection() -> None:
    assert proceeding(answer_of, lambda one, future: future.cancel()) == ([], True, 0)


def test_a_client_that_has_gone_gets_nothing_and_the_work_still_ends() -> None:
    ended: list[int] = []

    async def work(future: asyncio.Future[Any]) -> Answer:
        ended.append(await future)
        return OK

    def leave(one: Connected, future: asyncio.Future[Any]) -> None:
        one.protocol.connection_lost(None)
        future.set_result(7)

    statuses, _, errors = proceeding(work, leave)
    assert (statuses, errors, ended) == ([], 0, [7])


def waiting_twice(seen: list[Any]) -> Work:
    """Work that waits for the future and then, in a task, for a second one."""

    async def work(future: asyncio.Future[Any]) -> Answer:
        await future
        second: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        seen.append(second)
        try:
            return Answer(await second, [])
        except (ValueError, asyncio.CancelledError) as error:
            seen.append(type(error))
            raise
        finally:
            seen.append(asyncio.current_task() is not None)

    return work


def second_wait(end: Callable[[Connected, asyncio.Future[int]], object]) -> tuple[list[int], bool, list[Any]]:
    """End the first wait, see the task, and end the second wait."""
    seen: list[Any] = []
    result: list[tuple[list[int], bool]] = []

    async def test(one: Connected) -> None:
        await one.send(GET)
        first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        one.requests[0].proceed(waiting_twice(seen)(first))
        first.set_result(None)
        await one.settle()
        assert len(one.protocol.host.tasks) == 1
        end(one, seen[0])
        await one.settle()
        assert one.protocol.host.tasks == set()
        result.append((one.pipe.statuses, one.pipe.is_closed))

    run(test)
    return (*result[0], seen[1:])


def test_a_second_wait_is_in_a_task_that_the_host_knows() -> None:
    assert second_wait(lambda one, future: future.set_result(202)) == ([202], False, [True])


def test_an_exception_of_a_second_wait_reaches_the_work() -> None:
    def fail(one: Connected, future: asyncio.Future[int]) -> None:
        future.set_exception(ValueError())

    assert second_wait(fail) == ([500], False, [ValueError, True])


def test_cancelling_the_task_cancels_the_work_and_ends_the_connection() -> None:
    def cancel(one: Connected, future: asyncio.Future[int]) -> None:
        for task in one.protocol.host.tasks:
            task.cancel()

    assert second_wait(cancel) == ([], True, [asyncio.CancelledError, True])


def test_a_turn_given_to_others_needs_a_task() -> None:
    async def work() -> Answer:
        await asyncio.sleep(0)
        return OK

    async def test(one: Connected) -> None:
        await one.send(GET)
        one.requests[0].proceed(work())
        assert len(one.protocol.host.tasks) == 1
        await one.settle()
        assert one.pipe.statuses == [200]

    run(test)


def test_a_streamed_answer_of_work_is_sent_and_let_go_once() -> None:
    closed: list[str] = []

    async def produce(writer: BodyWriter) -> None:
        await writer.write(b"piece")

    async def work(future: asyncio.Future[Any]) -> StreamedAnswer:
        await future
        return StreamedAnswer([], produce, lambda: closed.append("closed"))

    assert proceeding(work, lambda one, future: future.set_result(None)) == ([200], False, 0)
    assert closed == ["closed"]


def test_work_with_a_large_body_or_one_that_still_arrives_has_a_task() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Content-Length: %d" % (APART_BYTES + 1)) + bytes(APART_BYTES + 1))
        one.requests[0].proceed(asyncio.sleep(0, OK))
        assert len(one.protocol.host.tasks) == 1
        await one.settle()

    run(test)
