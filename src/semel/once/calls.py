"""One call of a function that runs once, as flows: how it claims its key, and how it ends.

This module uses no clock, no thread and no event loop: time is an argument, and a flow yields its operations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from semel.once.claims import Act, FoundReceipt, Move, OnceClaim, ReceiptChange, judged
from semel.once.codec import Codec
from semel.once.errors import (
    Fenced,
    InFlight,
    OutcomeUnknown,
    RememberedError,
    ResultError,
    StoreUnavailable,
    TableMissing,
)
from semel.once.table import DONE, FAILED, NO_RESULT

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.02, 0.5


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Probe(NamedTuple):
    """Ask the user's function whether an earlier call took effect."""

    function: Callable[[], Any]


class Happened(NamedTuple):
    """Returned by `ask` if the earlier call took effect, with the result that every retry gets."""

    result: Any = None


Need = ReceiptChange | Pause | Probe
T = TypeVar("T")
Flow = Generator[Need, Any, T]


class OncePolicy(NamedTuple):
    """The retry policy of a function."""

    codec: Codec
    in_flight: str = "wait"
    wait_seconds: float = 10.0
    on_crash: str = "refuse"
    ask: Callable[..., Any] | None = None
    remember: tuple[type[Exception], ...] = ()


Elapsed = Callable[[], float]
"""Seconds since the call began, by the monotonic clock."""


def entered(claim: OnceClaim, policy: OncePolicy, elapsed: Elapsed, ask: Callable[[], Any]) -> Flow[FoundReceipt]:
    """Wait until this call may run or has a stored result."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        if (yield claim.to(Act.CLAIM)):
            return FoundReceipt(Move.RUN)
        rows = yield claim.to(Act.FIND)
        found = (
            judged(claim, rows[0]) if rows else FoundReceipt(Move.WAIT)
        )  # it was released between the two statements
        if found.owner == claim.owner:
            return FoundReceipt(Move.RUN)  # the claim succeeded, and its answer was lost
        if found.move in (Move.REPLAY, Move.RAISE, Move.NO_RESULT):
            return found
        if found.move is Move.UNKNOWN:
            turn = yield from _unknown(claim, found, policy, ask)
            if turn is not None:
                return turn
            continue
        if policy.in_flight != "wait" or elapsed() + pause > policy.wait_seconds:
            raise InFlight(claim.who.key, max(1.0, found.lease_left_ms / 1_000))
        yield Pause(pause)
        pause = min(2 * pause, LAST_PAUSE_SECONDS)


def _unknown(
    claim: OnceClaim,
    found: FoundReceipt,
    policy: OncePolicy,
    ask: Callable[[], Any],
) -> Flow[FoundReceipt | None]:
    """Apply `on_crash` after an earlier call ended without a receipt; None if another call took over first."""
    on_crash = "retry" if found.is_joined else policy.on_crash
    if on_crash == "refuse":
        raise OutcomeUnknown(claim.who.key)
    if not (yield claim.to(Act.TAKE_OVER, before=found.owner)):
        return None
    if on_crash == "retry":
        return FoundReceipt(Move.RUN)
    try:
        answer = yield Probe(ask)
    except BaseException:
        yield claim.to(Act.ABANDON)
        raise
    if not isinstance(answer, Happened):
        return FoundReceipt(Move.RUN)
    text = yield from finished(claim, policy.codec, answer.result)
    return FoundReceipt(Move.REPLAY, text)


def finished(claim: OnceClaim, codec: Codec, value: Any) -> Flow[str | None]:
    """Store the function's result. Returns its text."""
    try:
        text = None if value is None else codec.dumps(value)
    except Exception as error:
        yield from stored(claim, NO_RESULT, str(error))
        raise no_result(claim.who.key, str(error)) from error
    yield from stored(claim, DONE, text)
    return text


def failed(claim: OnceClaim, policy: OncePolicy, error: BaseException) -> Flow[None]:
    """Remember an exception, release the key, or leave the outcome unknown.

    It is unknown if the function was interrupted, or raised `OutcomeUnknown` itself: part of its work may have
    happened, so the key is not released. If the store is unavailable, the claim stays and is unknown when its lease
    ends; the function's own exception is raised.
    """
    with suppress(StoreUnavailable, TableMissing, OutcomeUnknown):
        yield from _noted(claim, policy, error)


def _noted(claim: OnceClaim, policy: OncePolicy, error: BaseException) -> Flow[None]:
    if not isinstance(error, Exception) or isinstance(error, OutcomeUnknown):
        yield claim.to(Act.ABANDON)
    elif isinstance(error, policy.remember):
        yield from stored(claim, FAILED, _error_text(error, policy.codec))
    else:
        yield claim.to(Act.RELEASE)


def stored(claim: OnceClaim, state: str, text: str | None) -> Flow[None]:
    """Store the result of a call that still holds its claim.

    If the store is unavailable or refuses it, the call took effect all the same: it raises `OutcomeUnknown`, never an
    error that says that nothing was run or that releases the key.
    """
    try:
        if (yield claim.to(Act.FINISH, state=state, result=text)):
            return
        rows = yield claim.to(Act.FIND)
    except Exception as error:
        raise OutcomeUnknown(claim.who.key) from error
    if rows and rows[0][1] == state and rows[0][3] == claim.owner:
        return  # the answer to the first attempt was lost
    raise Fenced(claim.who.key)


def no_result(key: str, why: str) -> ResultError:
    """The error of a call that took effect but whose result cannot be stored."""
    return ResultError(f"The call with the key {key!r} took effect, but its result cannot be stored: {why}")


def _error_text(error: Exception, codec: Codec) -> str:
    kind = type(error)
    try:
        args = codec.dumps(list(error.args))
    except Exception:  # noqa: BLE001 - the class matters; arguments that cannot be stored become text
        args = codec.dumps([str(error)])
    return json.dumps({"type": f"{kind.__module__}.{kind.__qualname__}", "args": args})


def remembered(text: str, policy: OncePolicy) -> Exception:
    """The exception of a text. Only classes in `remember` and their subclasses are ever instantiated."""
    facts = json.loads(text)
    args = policy.codec.loads(facts["args"])
    for kind in _below(policy.remember):
        if f"{kind.__module__}.{kind.__qualname__}" == facts["type"]:
            return kind(*args)
    return RememberedError(facts["type"], args)


def _below(kinds: tuple[type[Exception], ...]) -> list[type[Exception]]:
    found = list(kinds)
    for kind in found:
        found += [below for below in kind.__subclasses__() if below not in found]
    return found
