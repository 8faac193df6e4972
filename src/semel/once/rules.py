"""The decisions of `once.transaction`, as values: which statement is next, and what an answer means.

No driver and no clock is known here. A flow is a generator: it yields operations, is sent the rows that came back, and
returns what was decided; an error of the database is raised inside of it. The same flows are driven by blocking and by
asynchronous drivers. Between `OPEN` and `RELEASE` or `UNDO` there is a savepoint: an error undoes the block and leaves
the rest of the caller's transaction as it was.

| rows of `take` | receipt found | decision |
|---|---|---|
| one | - | fresh: this transaction has the key |
| none | same fingerprint, done | replay of its result |
| none | other fingerprint | `KeyMismatch` |
| none | running | `OutcomeUnknown`: its transaction was committed before it had a result |
| none | none | `RunAgain`: it was removed between the two statements, or the snapshot is older than it |
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from semel.kernel.verdict import Verdict
from semel.once.errors import KeyMismatch, OutcomeUnknown, RunAgain
from semel.once.identity import OnceIdentity
from semel.once.table import DONE, SWEPT, Receipts, Row, Statement


class OnceStep(Enum):
    """What is asked of a driver besides statements."""

    OPEN = "open"
    """Set a savepoint in the caller's transaction."""
    RELEASE = "release"
    """Keep what was done since."""
    UNDO = "undo"
    """Undo what was done since."""


class LockPatience(NamedTuple):
    """From here on, do not wait longer than this for a transaction that has the key; None restores what was before."""

    seconds: float | None


class OnceBatch(NamedTuple):
    """A step and the statement behind it, in one round trip where the driver can; the statement's rows come back.

    If the statement behind `OPEN` fails, the savepoint is undone before the error is raised.
    """

    step: OnceStep
    statement: Statement


Operation = Statement | OnceStep | LockPatience
T = TypeVar("T")
Flow = Generator[Operation | OnceBatch, Sequence[Row], T]


class Decision(NamedTuple):
    """What is to be done with a call."""

    verdict: Verdict
    result: str | None = None
    """Text of the result that is replayed."""
    created_ms: int = 0
    """When the receipt was made."""
    previous_ms: int | None = None
    """When an earlier receipt of the same key was made that has expired."""


class OnceCall(NamedTuple):
    """One call."""

    who: OnceIdentity
    fingerprint: bytes
    now_ms: int
    keep_ms: int
    wait_seconds: float | None = None
    """How long to wait for another transaction that has the key; None is as long as the database waits."""


def opened(receipts: Receipts, wanted: OnceCall) -> Flow[Decision]:
    """Begin: with the key, in a savepoint that is open; or with what is remembered, and none."""
    take = receipts.take(wanted.who, wanted.fingerprint, wanted.now_ms, wanted.keep_ms)
    rows: Sequence[Row] | None = None
    if wanted.wait_seconds is None:
        rows = yield OnceBatch(OnceStep.OPEN, take)
    else:
        yield OnceStep.OPEN
    try:
        if rows is None:
            rows = yield from _patiently(take, wanted.wait_seconds)
        decision = _fresh(rows[0]) if rows else judged(wanted, (yield receipts.find(wanted.who)))
    except BaseException:
        yield OnceStep.UNDO
        raise
    if decision.verdict is not Verdict.FRESH:
        yield OnceStep.RELEASE
    return decision


def finished(receipts: Receipts, wanted: OnceCall, result: str | None, *, is_sweeping: bool = False) -> Flow[None]:
    """End a block that had the key: effect and receipt are in the caller's transaction, and commit with it.

    The savepoint goes first: where the block has ended the transaction there is none, and nothing is written then.
    """
    yield OnceBatch(OnceStep.RELEASE, receipts.finish(wanted.who, result))
    if is_sweeping:
        yield from swept(receipts, wanted.now_ms)


def swept(receipts: Receipts, now_ms: int) -> Flow[None]:
    """Remove a few receipts that have expired; what goes wrong with it is undone, and harms no other work."""
    yield OnceStep.OPEN
    try:
        yield receipts.sweep(now_ms, SWEPT)
    except Exception:  # noqa: BLE001 - any error of a driver
        yield OnceStep.UNDO
    else:
        yield OnceStep.RELEASE


def undone(error: Exception | None = None) -> Flow[None]:
    """End a block that raised, or whose result cannot be stored: neither effect nor receipt is left."""
    yield OnceStep.UNDO
    if error is not None:
        raise error


def _patiently(take: Statement, wait_seconds: float | None) -> Flow[Sequence[Row]]:
    """Take the key, and do not wait for longer than that."""
    yield LockPatience(wait_seconds)
    rows = yield take
    yield LockPatience(None)
    return rows


def _fresh(row: Row) -> Decision:
    created_ms, previous_ms = row
    return Decision(Verdict.FRESH, None, int(created_ms), previous_ms)


def judged(wanted: OnceCall, found: Sequence[Row]) -> Decision:
    """What a receipt that still counts says of a call."""
    if not found:
        raise RunAgain(wanted.who.key)
    known, state, result, created_ms, _ = found[0]
    if bytes(known) != wanted.fingerprint:
        raise KeyMismatch(wanted.who.key)
    if state != DONE:
        raise OutcomeUnknown(wanted.who.key)
    return Decision(Verdict.REPLAY, result, int(created_ms))
