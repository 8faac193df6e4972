"""The decisions of `once.transaction` as pure functions: which statement comes next, and what its rows mean.

This module uses no driver and no clock. A flow is a generator: it yields operations, is sent the rows that they return,
and returns a decision; a database error is raised inside it. Synchronous and asynchronous drivers run the same flows.
Between `OPEN` and `RELEASE` or `UNDO` there is a savepoint: an error undoes the block, and not the caller's other work.

| rows of `take` | receipt found | decision |
|---|---|---|
| one | - | fresh: this transaction has the key |
| none | same fingerprint, done | replay of its result |
| none | other fingerprint | `KeyMismatch` |
| none | running | `OutcomeUnknown`: its transaction was committed before it had a result |
| none | none | `RunAgain`: it was deleted between the two statements, or is newer than the snapshot |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, TypeVar

from semel.kernel.verdict import Verdict
from semel.once.errors import KeyMismatch, OutcomeUnknown, RunAgain
from semel.once.identity import OnceIdentity
from semel.once.table import DONE, SWEPT, Receipts, Row, Statement


class OnceStep(Enum):
    """Operations of a driver besides statements."""

    OPEN = "open"
    """Create a savepoint in the caller's transaction."""
    RELEASE = "release"
    """Release the savepoint."""
    UNDO = "undo"
    """Roll back to the savepoint."""


class LockPatience(NamedTuple):
    """Limits how long later statements wait for a transaction that holds the key; None restores the old limit."""

    seconds: float | None


class OnceBatch(NamedTuple):
    """`OPEN` and a statement after it, or a statement and `RELEASE` after it: one round trip where the driver can.

    Returns the statement's rows. If the statement after `OPEN` fails, the savepoint is rolled back before the error is
    raised. The statement before `RELEASE` does not run if the savepoint's transaction is over.
    """

    step: OnceStep
    statement: Statement


Operation = Statement | OnceStep | LockPatience
T = TypeVar("T")
Flow = Generator[Operation | OnceBatch, Sequence[Row], T]


class Decision(NamedTuple):
    """How a call proceeds."""

    verdict: Verdict
    result: str | None = None
    """Text of the result to replay."""
    created_ms: int = 0
    """When the receipt was created."""
    previous_ms: int | None = None
    """When the expired receipt of the same key was created, if there was one."""
    owner: str | None = None
    """The request whose transaction wrote the receipt to replay."""


class OnceCall(NamedTuple):
    """One call."""

    who: OnceIdentity
    fingerprint: bytes
    now_ms: int
    keep_ms: int
    owner: str | None = None
    """The request that this call has joined."""
    wait_seconds: float | None = None
    """How long to wait for another transaction that holds the key; None leaves it to the database."""


def opened(receipts: Receipts, wanted: OnceCall) -> Flow[Decision]:
    """Begin a call: fresh, with the key taken in an open savepoint; or with the stored receipt, without a savepoint."""
    take = receipts.take(wanted.who, wanted.fingerprint, wanted.now_ms, wanted.keep_ms, wanted.owner)
    rows: Sequence[Row] | None = None
    if wanted.wait_seconds is None:
        rows = yield OnceBatch(OnceStep.OPEN, take)
    else:
        yield OnceStep.OPEN
    try:
        if rows is None:
            rows = yield from _patiently(take, wanted.wait_seconds)
        # Without the key nothing was written, so the savepoint ends in the message that reads the receipt.
        found = () if rows else (yield OnceBatch(OnceStep.RELEASE, receipts.find(wanted.who)))
    except BaseException:
        yield OnceStep.UNDO
        raise
    return _fresh(rows[0]) if rows else judged(wanted, found)


def finished(receipts: Receipts, wanted: OnceCall, result: str | None, *, is_sweeping: bool = False) -> Flow[None]:
    """End a fresh block: effect and receipt are in the caller's transaction and commit with it.

    The result is stored before the savepoint is released, because a release cannot be undone: a caller who caught the
    error of a failed store and committed would keep the effect without its result.
    """
    try:
        yield OnceBatch(OnceStep.RELEASE, receipts.finish(wanted.who, result))
    except BaseException as error:
        yield from _reverted(receipts, wanted)
        raise error
    if is_sweeping:
        yield from swept(receipts, wanted.now_ms)


def swept(receipts: Receipts, now_ms: int) -> Flow[None]:
    """Delete a few expired receipts. An error is rolled back and ignored."""
    yield OnceStep.OPEN
    try:
        yield receipts.sweep(now_ms, SWEPT)
    except Exception:  # noqa: BLE001 - any driver's error
        yield OnceStep.UNDO
    else:
        yield OnceStep.RELEASE


def _reverted(receipts: Receipts, wanted: OnceCall) -> Flow[None]:
    """Roll back a block whose end failed.

    If the block committed its transaction and began another one, there is no savepoint any more. The receipt then goes
    back to what the commit left: it has no result.
    """
    try:
        yield OnceStep.UNDO
    except Exception:  # noqa: BLE001 - any driver's error
        with suppress(Exception):
            yield receipts.reopen(wanted.who)


def undone(error: Exception | None = None) -> Flow[None]:
    """Roll back a block that raised, or whose result cannot be stored: neither effect nor receipt remains."""
    yield OnceStep.UNDO
    if error is not None:
        raise error


def in_savepoint(flow: Flow[T], is_kept: Callable[[T], bool] = lambda _: True) -> Flow[T]:
    """A flow in a savepoint of the caller's transaction: an error does not undo the caller's other work."""
    yield OnceStep.OPEN
    try:
        found = yield from flow
    except BaseException:
        yield OnceStep.UNDO
        raise
    yield OnceStep.RELEASE if is_kept(found) else OnceStep.UNDO
    return found


def _patiently(take: Statement, wait_seconds: float | None) -> Flow[Sequence[Row]]:
    """Take the key; wait at most as long as the call allows."""
    yield LockPatience(wait_seconds)
    rows = yield take
    yield LockPatience(None)
    return rows


def _fresh(row: Row) -> Decision:
    created_ms, previous_ms = row
    return Decision(Verdict.FRESH, None, int(created_ms), previous_ms)


def judged(wanted: OnceCall, found: Sequence[Row]) -> Decision:
    """The decision for a call whose key has an unexpired receipt."""
    if not found:
        raise RunAgain(wanted.who.key)
    known, state, result, created_ms, owner = found[0]
    if bytes(known) != wanted.fingerprint:
        raise KeyMismatch(wanted.who.key)
    if state != DONE:
        raise OutcomeUnknown(wanted.who.key)
    return Decision(Verdict.REPLAY, result, int(created_ms), owner=owner)
