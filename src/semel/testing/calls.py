"""The call under test with its options, and the outcome of one call."""

from __future__ import annotations

import inspect
import sys
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from semel.testing.report import CallOutcome

PAUSE_SECONDS = 0.02


class UnusableCallError(Exception):
    """The test cannot run with these arguments; the message says what to change."""


@dataclass(frozen=True)
class Subject:
    """The call under test, with its options."""

    call: Callable[..., Any]
    count: Callable[[], Any]
    """Counts the effects of all calls so far."""
    answer: Callable[[Any], Any]
    unknown: Callable[[object], bool]
    again: Callable[[object], bool]
    reset: Callable[[], object]
    restart: Callable[[], object]
    before_retry: Callable[[], object]
    takes_key: bool
    is_async: bool
    racers: int
    timeout: float
    patience: float
    max_places: int
    at: int | None

    def effects(self) -> int:
        """Count the effects."""
        found = self.count()
        return int(ran(found) if inspect.isawaitable(found) else found)

    def begin(self) -> KeyedCall:
        """A new call: with a new key, or after a reset."""
        self.reset()
        return KeyedCall(self, uuid.uuid4().hex)


def subject_of(
    *,
    call: Callable[..., Any],
    unknown: Callable[[object], bool] | None,
    again: Callable[[object], bool] | None,
    reset: Callable[[], object] | None,
    **others: Any,
) -> Subject:
    """The call under test with defaults. Raises `UnusableCallError` if it cannot be tested."""
    from semel.once.errors import InFlight, OutcomeUnknown, RunAgain  # noqa: PLC0415 - as below

    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise UnusableCallError(
            "An event loop is running in this thread: write `await asyncio.to_thread(assert_idempotent, ...)`."
        )
    takes_key = _takes_key(call)
    if not takes_key and reset is None:
        raise UnusableCallError("Pass a call that takes a key, as `lambda key: ...`, or pass reset=.")
    return Subject(
        call=call,
        unknown=unknown or (lambda found: isinstance(found, OutcomeUnknown)),
        again=again or (lambda found: isinstance(found, InFlight | RunAgain)),
        reset=reset or (lambda: None),
        takes_key=takes_key,
        is_async=inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__),
        **others,
    )


def _takes_key(call: Callable[..., Any]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kinds = [*positional, inspect.Parameter.VAR_POSITIONAL]
    return any(parameter.kind in kinds for parameter in inspect.signature(call).parameters.values())


class KeyedCall:
    """Calls with one key."""

    def __init__(self, subject: Subject, key: str) -> None:
        self._subject = subject
        self._key = key
        self._before = subject.effects()

    def effects(self) -> int:
        """The number of effects since the first call."""
        return self._subject.effects() - self._before

    def made(self) -> Any:
        """Make the call. Returns its value, or its coroutine."""
        return self._subject.call(self._key) if self._subject.takes_key else self._subject.call()

    def outcome(self) -> CallOutcome:
        """Make the call in this thread, and retry while it asks for a retry."""
        deadline = time.monotonic() + self._subject.timeout
        while True:
            found = self._tried()
            if found.kind != "again" or time.monotonic() > deadline:
                return found
            time.sleep(PAUSE_SECONDS)

    async def outcome_async(self, stepped: Callable[[Any], Awaitable[Any]] = lambda made: made) -> CallOutcome:
        """`outcome` in this task; `stepped` wraps the coroutine before it begins."""
        import asyncio  # noqa: PLC0415 - the plugin imports this module in every run of pytest

        deadline = time.monotonic() + self._subject.timeout
        while True:
            try:
                found = ended(self._subject, await stepped(self.made()))
            except Exception as error:  # noqa: BLE001 - any error is how the call ended
                found = raised(self._subject, error)
            if found.kind != "again" or time.monotonic() > deadline:
                return found
            await asyncio.sleep(PAUSE_SECONDS)

    def _tried(self) -> CallOutcome:
        try:
            value = self.made()
            return ended(self._subject, ran(value) if inspect.isawaitable(value) else value)
        except Exception as error:  # noqa: BLE001 - any error is how the call ended
            return raised(self._subject, error)


def ended(subject: Subject, value: Any) -> CallOutcome:
    """The outcome of a call that returned."""
    if subject.unknown(value):
        return CallOutcome("unknown", text=f"unknown: {value!r}")
    if subject.again(value):
        return CallOutcome("again", text=f"refused for now: {value!r}")
    compared = subject.answer(value)
    return CallOutcome("answer", compared, f"answered {compared!r}")


def raised(subject: Subject, error: Exception) -> CallOutcome:
    """The outcome of a call that raised."""
    if subject.unknown(error):
        return CallOutcome("unknown", text=f"unknown: {error!r}")
    if subject.again(error):
        return CallOutcome("again", text=f"refused for now: {error!r}")
    lines = traceback.format_exception(error, limit=-4)
    return CallOutcome("error", text="".join(lines).rstrip())


def ran(awaitable: Any) -> Any:
    """Run a coroutine in a new event loop."""
    import asyncio  # noqa: PLC0415 - as above

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())
