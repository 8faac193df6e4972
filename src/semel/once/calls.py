"""One call of a function that runs once, as flows: how it claims its key, and how it ends.

This module uses no clock, no thread and no event loop: time is an argument, and a flow yields its operations.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from semel.once.claims import Act, FoundReceipt, Move, OnceClaim, ReceiptChange, judged
from semel.once.codec import Codec, text_of
from semel.once.errors import (
    Fenced,
    InFlight,
    InvalidKey,
    OutcomeUnknown,
    RememberedError,
    ResultError,
    StoreBusy,
    StoreUnavailable,
    TableMissing,
)
from semel.once.failures import in_chain, leaves_open
from semel.once.table import DONE, FAILED, NO_RESULT, Row, Statement

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.02, 0.5
LEAST_PATIENCE_SECONDS = 1.0
"""How long a statement may wait for locks at least, however short the caller's own wait is."""


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Probe(NamedTuple):
    """Ask the user's function whether an earlier call took effect, and keep the lease of the claim meanwhile."""

    function: Callable[[], Any]
    claim: OnceClaim


class UnfinishedError(ResultError):
    """A function returned what has still to run, after it may have had an effect; none of its options releases that."""


class Happened(NamedTuple):
    """Returned by `ask` if the earlier call took effect, with the result that every retry gets."""

    result: Any = None


class Look(NamedTuple):
    """Read the receipt of a block on another connection: its rows, or None if they cannot be read."""

    witness: Any
    statement: Statement


Need = ReceiptChange | Pause | Probe | Look
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
    releases: tuple[type[Exception], ...] = ()
    unknown: tuple[type[Exception], ...] = ()


Elapsed = Callable[[], float]
"""Seconds since the call began, by the monotonic clock."""


def entered(claim: OnceClaim, policy: OncePolicy, elapsed: Elapsed, ask: Callable[[], Any]) -> Flow[FoundReceipt]:
    """Wait until this call may run or has a stored result."""
    pause, is_taking_over = FIRST_PAUSE_SECONDS, False
    while True:
        left = max(LEAST_PATIENCE_SECONDS, policy.wait_seconds - elapsed())
        try:
            rows = yield claim.to(Act.CLAIM, patience=left)
        except StoreBusy:
            return (yield from _behind_a_lock(claim))
        if rows:
            return FoundReceipt(Move.RUN, attempt=rows[0][0], fence=rows[0][1])
        rows = yield claim.to(Act.FIND, patience=left)
        found = judged(claim, rows[0]) if rows else FoundReceipt(Move.WAIT)  # it was released in between
        if found.owner == claim.owner and found.move in (Move.WAIT, Move.UNKNOWN):
            # This call holds the key, and the answer that said so was lost.
            return (yield from _after_take_over(claim, found, policy, ask)) if is_taking_over else _running(found)
        if found.move in (Move.REPLAY, Move.RAISE, Move.NO_RESULT):
            return found
        if found.move is Move.UNKNOWN:
            is_taking_over = True
            rows = yield from _take_over(claim, found, policy, left)
            if rows:
                found = found._replace(attempt=rows[0][0], fence=rows[0][1])
                return (yield from _after_take_over(claim, found, policy, ask))
            continue  # another call was faster, or the lease was renewed
        if policy.in_flight != "wait" or elapsed() + pause > policy.wait_seconds:
            raise InFlight(claim.who.key, max(1.0, found.lease_left_ms / 1_000))
        yield Pause(pause)
        pause = min(2 * pause, LAST_PAUSE_SECONDS)


def _take_over(claim: OnceClaim, found: FoundReceipt, policy: OncePolicy, patience: float) -> Flow[Sequence[Row]]:
    """Take the key of a call that ended without a receipt, if `on_crash` allows a second run."""
    if _on_crash(found, policy) not in ("retry", "ask"):
        raise OutcomeUnknown(claim.who.key)
    try:
        rows: Sequence[Row] = yield claim.to(Act.TAKE_OVER, before=found.owner, patience=patience)
    except StoreBusy as error:
        raise InFlight(claim.who.key) from error
    return rows


def _behind_a_lock(claim: OnceClaim) -> Flow[FoundReceipt]:
    """Nothing can be claimed while another transaction holds the table. A stored result can often be read."""
    rows = yield claim.to(Act.FIND, patience=LEAST_PATIENCE_SECONDS)
    found = judged(claim, rows[0]) if rows else None
    if found is not None and found.move in (Move.REPLAY, Move.RAISE, Move.NO_RESULT):
        return found
    if found is not None and found.move is Move.WAIT:
        raise InFlight(claim.who.key, max(1.0, found.lease_left_ms / 1_000))
    raise StoreBusy("The store is locked: another transaction holds it. Nothing was run.")


def _running(found: FoundReceipt) -> FoundReceipt:
    return found._replace(move=Move.RUN)


def _on_crash(found: FoundReceipt, policy: OncePolicy) -> str:
    return "retry" if found.is_joined else policy.on_crash


def _after_take_over(
    claim: OnceClaim, found: FoundReceipt, policy: OncePolicy, ask: Callable[[], Any]
) -> Flow[FoundReceipt]:
    """Run again, or let the user's function find out whether the earlier call took effect."""
    if _on_crash(found, policy) == "retry":
        return _running(found)
    try:
        answer = yield Probe(ask, claim)
    except BaseException:
        yield claim.to(Act.ABANDON)
        raise
    if answer is None:
        return _running(found)
    if not isinstance(answer, Happened):
        yield claim.to(Act.ABANDON)
        if inspect.iscoroutine(answer):
            answer.close()  # it is never awaited, and need not warn of that
        raise InvalidKey(
            f"ask= returned a {type(answer).__qualname__} for the key {claim.who.key!r}, so nothing was run: return "
            "once.Happened(result) if the earlier call took effect, else None."
        )
    text = yield from finished(claim, policy.codec, answer.result)
    return FoundReceipt(Move.REPLAY, text)


def finished(claim: OnceClaim, codec: Codec, value: Any) -> Flow[str | None]:
    """Store the function's result. Returns its text."""
    try:
        text = text_of(codec, value)
    except ResultError as error:
        yield from stored(claim, NO_RESULT, str(error))
        raise no_result(claim.who.key, str(error)) from error
    yield from stored(claim, DONE, text)
    return text


def never_run(claim: OnceClaim) -> Flow[None]:
    """Give a key back whose caller was stopped before its function began."""
    with suppress(StoreUnavailable, TableMissing):
        yield claim.to(Act.GIVE_BACK)


def failed(claim: OnceClaim, policy: OncePolicy, error: BaseException, before: BaseException | None) -> Flow[None]:
    """Remember an exception, release the key, or leave the outcome open.

    The key is released only if the exception shows that nothing happened. If the store is unavailable, the claim stays
    and is unknown when its lease ends; the function's own exception is raised.
    """
    with suppress(StoreUnavailable, TableMissing, OutcomeUnknown):
        if isinstance(error, policy.remember) and not isinstance(error, UnfinishedError):
            yield from stored(claim, FAILED, _error_text(error, policy.codec))
        else:
            yield claim.to(Act.ABANDON if is_open(policy, error, before) else Act.RELEASE)


def is_open(policy: OncePolicy, error: BaseException, before: BaseException | None) -> bool:
    """Whether the effect may have happened, although the function raised this; the user's options come first."""
    if not isinstance(error, Exception) or isinstance(error, UnfinishedError):
        return True
    if isinstance(error, policy.releases):
        return False
    return (bool(policy.unknown) and in_chain(error, policy.unknown, before)) or leaves_open(error, before)


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
        args = text_of(codec, list(error.args))
    except ResultError:  # the class matters; arguments that cannot be stored become text
        args = text_of(codec, [str(error)])
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
