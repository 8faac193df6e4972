"""Runs a coroutine one step at a time, and can hold or cancel it wherever it waits.

An event loop switches tasks only where one waits, so these are all the places where another task can run in between,
and where a cancellation can arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from semel.testing.calls import KeyedCall, Subject
from semel.testing.places import is_library, line_of
from semel.testing.report import CallOutcome

Notice = Callable[[Any], None]
Gate = Callable[[Any], Awaitable[object] | None]


class SteppedCoroutine:
    """Awaits a coroutine. Reports when it begins to wait, and can hold it before it continues."""

    def __init__(self, made: Any, waits: Notice = lambda made: None, goes_on: Gate = lambda made: None) -> None:
        self._made = made
        self._waits = waits
        self._goes_on = goes_on

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._made.__await__()
        try:
            waited_for = steps.send(None)
            while True:
                self._waits(self._made)
                try:
                    answer = yield waited_for
                    gate = self._goes_on(self._made)
                    if gate is not None:
                        yield from gate.__await__()
                except BaseException as error:  # noqa: BLE001 - a cancellation is the coroutine's
                    waited_for = steps.throw(error)
                else:
                    waited_for = steps.send(answer)
        except StopIteration as end:
            return end.value


def waits_at(made: Any) -> str:
    """The line of the user's own code where a coroutine waits."""
    where = ""
    while made is not None:
        frame = getattr(made, "cr_frame", None)
        if frame is not None and (not where or not is_library(frame.f_globals.get("__name__", ""))):
            where = line_of(frame)
        made = getattr(made, "cr_await", None)
    return where


async def cancelled(subject: Subject, call: KeyedCall, number: int) -> tuple[str, CallOutcome] | None:
    """Cancel a call at its nth wait. Returns the place and the outcome, or None if the call ended before."""
    places: list[str] = []

    def cancel(made: Any) -> None:
        places.append(waits_at(made))
        if len(places) == number:
            # After the loop has registered what the task waits for, so that this is cancelled too.
            asyncio.get_running_loop().call_soon(task.cancel)

    task = asyncio.create_task(call.outcome_async(lambda made: SteppedCoroutine(made, waits=cancel)))
    await asyncio.wait({task}, timeout=subject.timeout)
    outcome = _outcome(task, subject)
    return (places[number - 1], outcome) if len(places) >= number else None


async def preempted(subject: Subject, call: KeyedCall, number: int) -> tuple[str, list[CallOutcome]] | None:
    """Hold a call at its nth wait while a second one runs. Returns None if the call ended before."""
    places: list[str] = []
    held, go_on = asyncio.Event(), asyncio.Event()

    def hold(made: Any) -> Awaitable[object] | None:
        places.append(waits_at(made))
        if len(places) != number:
            return None
        held.set()
        return go_on.wait()

    first = asyncio.create_task(call.outcome_async(lambda made: SteppedCoroutine(made, goes_on=hold)))
    first.add_done_callback(lambda _: held.set())
    async with asyncio.timeout(subject.timeout):
        await held.wait()
    if first.done():
        first.result()
        return None
    second = asyncio.create_task(call.outcome_async())
    await asyncio.wait({second}, timeout=subject.patience)
    go_on.set()
    await asyncio.wait({first, second}, timeout=subject.timeout)
    return places[number - 1], [_outcome(first, subject), _outcome(second, subject)]


async def side_by_side(subject: Subject, call: KeyedCall) -> list[CallOutcome]:
    """Run calls in one loop; all begin before any continues."""
    tasks = [asyncio.create_task(call.outcome_async()) for _ in range(subject.racers)]
    await asyncio.wait(tasks, timeout=subject.timeout)
    return [_outcome(task, subject) for task in tasks]


def _outcome(task: asyncio.Task[CallOutcome], subject: Subject) -> CallOutcome:
    if task.cancelled():
        return CallOutcome("cut off", text="cancelled")
    if not task.done():
        task.cancel()
        return CallOutcome("error", text=f"It did not end within {subject.timeout:g} s.")
    return task.result()
