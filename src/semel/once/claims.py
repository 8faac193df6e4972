"""The decisions of a function that runs once, as pure functions: which call may run, and what a retry gets.

A function has effects outside the database, so its receipt cannot be in the same transaction. The key is claimed first,
with a lease that is renewed while the function runs, and the receipt is finished afterwards:

| receipt found | decision |
|---|---|
| none, or expired | run: the key is claimed for this call |
| done | replay of its result |
| failed | the remembered exception is raised again |
| other arguments | `KeyMismatch` |
| running, lease in force | wait, or `InFlight` |
| running, lease ended or given up | its caller crashed or lost the store: unknown, and `on_crash` decides |

`refuse` raises `OutcomeUnknown`, `retry` runs again, and `ask` calls a function of the user that finds out. Each
statement is its own transaction. A call that finishes after another has taken over its lease changes nothing and raises
`Fenced`. A crash between claim and finish leaves the claim, and so an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from semel.once.errors import KeyMismatch
from semel.once.identity import OnceIdentity
from semel.once.table import (
    DONE,
    FAILED,
    NO_RESULT,
    PATIENCE_SECONDS,
    RUNNING,
    OnceInstant,
    Row,
    Statement,
    checked,
)

JOINED = "joined"
"""Stored instead of a result while a call runs whose effect is in a transaction with the same key."""


class Move(Enum):
    """The next step of a call."""

    RUN = "run"
    REPLAY = "replay"
    RAISE = "raise"
    NO_RESULT = "no result"
    WAIT = "wait"
    UNKNOWN = "unknown"


class FoundReceipt(NamedTuple):
    """The receipt that a call found under its key."""

    move: Move
    result: str | None = None
    owner: str = ""
    """The owner of the claim, if it is running or unknown."""
    created_ms: int = 0
    lease_left_ms: int = 0
    attempt: int = 1
    fence: int = 0
    is_joined: bool = False
    """Whether its effect is in a transaction with the same key, so that it is safe to run again."""


class Act(Enum):
    """Operations on a store of receipts. Each is one transaction and may be repeated."""

    CLAIM = "claim"
    """Claim the key. Returns one row if it was free or expired: the attempt and the fence."""
    FIND = "find"
    """Read the receipt of a key with the rest of its lease: one row, or none."""
    TAKE_OVER = "take over"
    """Take over from a caller whose lease has ended. Returns one row unless another call did so first: as for claim."""
    JOIN = "join"
    """Mark that the effect is in a transaction with the same key."""
    ABANDON = "abandon"
    """Give the lease up: the outcome is unknown, and the next call need not wait."""
    FINISH = "finish"
    """Store the result. Returns one row while this call holds the claim."""
    GIVE_BACK = "give back"
    """Release the key of a call that never ran. One that was taken over goes back to unknown, as it was before."""
    RELEASE = "release"
    """Release the key, so that the next call runs."""
    FORGET = "forget"
    """Delete the receipt of a key in any state."""
    RESOLVE = "resolve"
    """Store the result of a call whose outcome is unknown."""


class ReceiptChange(NamedTuple):
    """One operation on the receipt of a key."""

    act: Act
    who: OnceIdentity
    claim: OnceClaim | None = None
    before: str = ""
    """The owner from whom the call takes over."""
    state: str = DONE
    result: str | None = None
    keep_ms: int = 0
    patience: float = PATIENCE_SECONDS
    """How long the store may wait for connections and locks, in seconds."""

    def undone(self) -> ReceiptChange | None:
        """What takes back a change whose caller does not run: it was stopped, or the answer was lost."""
        if self.claim is None or self.act not in (Act.CLAIM, Act.TAKE_OVER):
            return None
        return self.claim.to(Act.GIVE_BACK)

    @property
    def is_due_without_caller(self) -> bool:
        """Whether it is to be stored although its caller was stopped meanwhile: the function has returned."""
        return self.act is Act.FINISH


class OnceClaim(NamedTuple):
    """One call of a function."""

    who: OnceIdentity
    fingerprint: bytes
    owner: str
    """A text that is unique to this call."""
    keep_ms: int
    lease_ms: int

    def to(
        self,
        act: Act,
        *,
        before: str = "",
        state: str = DONE,
        result: str | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> ReceiptChange:
        """An operation of this call."""
        return ReceiptChange(act, self.who, self, before, state, result, self.keep_ms, patience)


def judged(claim: OnceClaim, row: Row) -> FoundReceipt:
    """The next step of a call whose key has an unexpired receipt."""
    known, state, result, owner, lease_left_ms, created_ms, attempt, fence = row
    if bytes(known) != claim.fingerprint:
        raise KeyMismatch(claim.who.key)
    if state == DONE:
        return FoundReceipt(Move.REPLAY, result, created_ms=int(created_ms))
    if state == FAILED:
        return FoundReceipt(Move.RAISE, result, created_ms=int(created_ms))
    if state == NO_RESULT:
        return FoundReceipt(Move.NO_RESULT, result, created_ms=int(created_ms))
    left = int(lease_left_ms or 0)
    move = Move.WAIT if left > 0 else Move.UNKNOWN
    return FoundReceipt(
        move, None, owner or "", int(created_ms), max(0, left), attempt or 1, fence or 0, is_joined=result == JOINED
    )


def _raised(before: str, now: str) -> str:
    """SQL: the fence of a new holder. It is its time, so that it grows although receipts are deleted in between."""
    return f"CASE WHEN {before} >= {now} THEN {before} + 1 ELSE {now} END"


class ClaimStatements:
    """The operations on receipts as SQL on one table."""

    def __init__(self, table: str) -> None:
        name = checked(table)
        is_over = "t.expires_at <= ? AND (t.state <> 'running' OR t.lease_until IS NULL OR t.lease_until <= ?)"
        self._claim = (
            f"INSERT INTO {name} AS t "
            "(scope, key, fingerprint, state, owner, lease_until, created_at, expires_at, fence, attempt) "
            f"VALUES (?, ?, ?, '{RUNNING}', ?, ?, ?, ?, ?, 1) ON CONFLICT (scope, key) DO UPDATE SET "
            "fingerprint = excluded.fingerprint, state = excluded.state, result = NULL, owner = excluded.owner, "
            "lease_until = excluded.lease_until, created_at = excluded.created_at, expires_at = excluded.expires_at, "
            f"attempt = 1, fence = {_raised('t.fence', 'excluded.fence')}, previous_at = t.created_at "
            f"WHERE {is_over} RETURNING attempt, fence"
        )
        self._find = (
            "SELECT fingerprint, state, result, owner, lease_until - ?, created_at, attempt, fence "
            f"FROM {name} WHERE scope = ? AND key = ?"
        )
        mine = "WHERE scope = ? AND key = ? AND owner = ? AND state = 'running'"
        self._take_over = (
            f"UPDATE {name} SET owner = ?, lease_until = ?, created_at = ?, attempt = attempt + 1, "
            f"fence = {_raised('fence', '?')} {mine} AND (lease_until IS NULL OR lease_until <= ?) "
            "RETURNING attempt, fence"
        )
        self._look = (
            f"UPDATE {name} SET owner = owner {mine} AND (lease_until IS NULL OR lease_until <= ?) "
            "RETURNING lease_until"
        )
        self._join = f"UPDATE {name} SET result = '{JOINED}' {mine} RETURNING owner"
        self._renew = (
            f"UPDATE {name} AS t SET lease_until = v.column4 FROM (VALUES {{}}) AS v "
            "WHERE t.scope = v.column1 AND t.key = v.column2 AND t.owner = v.column3 AND t.state = 'running' "
            "RETURNING owner"
        )
        self._abandon = f"UPDATE {name} SET lease_until = 0 {mine} RETURNING owner"
        self._finish = (
            f"UPDATE {name} SET state = ?, result = ?, lease_until = NULL, expires_at = ? {mine} RETURNING owner"
        )
        self._release = f"DELETE FROM {name} {mine} RETURNING owner"
        self._give_back = f"DELETE FROM {name} {mine} AND attempt = 1 RETURNING owner"
        self._forget = f"DELETE FROM {name} WHERE scope = ? AND key = ? RETURNING owner"
        self._resolve = (
            f"UPDATE {name} SET state = '{DONE}', result = ?, lease_until = NULL, expires_at = ? "
            f"WHERE scope = ? AND key = ? AND state = '{RUNNING}' AND (lease_until IS NULL OR lease_until <= ?) "
            "RETURNING owner"
        )

    def statement(self, change: ReceiptChange, now_ms: int) -> Statement:
        """The SQL of a change."""
        now, who = OnceInstant(now_ms), change.who
        if change.act is Act.FIND:
            return Statement(self._find, (now, *who))
        if change.act is Act.FORGET:
            return Statement(self._forget, tuple(who))
        if change.act is Act.RESOLVE:
            return Statement(self._resolve, (change.result, OnceInstant(now_ms, change.keep_ms), *who, now))
        assert change.claim is not None, "every other operation belongs to a call"
        return self._of_call(change, change.claim, now)

    def _of_call(self, change: ReceiptChange, claim: OnceClaim, now: OnceInstant) -> Statement:
        lease, ends = now._replace(more_ms=claim.lease_ms), now._replace(more_ms=claim.keep_ms)
        mine = (*claim.who, claim.owner)
        if change.act is Act.CLAIM:
            last = now._replace(more_ms=claim.lease_ms + claim.keep_ms)
            return Statement(self._claim, (*claim.who, claim.fingerprint, claim.owner, lease, now, last, now, now, now))
        if change.act is Act.TAKE_OVER:
            return Statement(self._take_over, (claim.owner, lease, now, now, now, *claim.who, change.before, now))
        if change.act is Act.FINISH:
            return Statement(self._finish, (change.state, change.result, ends, *mine))
        other = {
            Act.JOIN: self._join,
            Act.ABANDON: self._abandon,
            Act.RELEASE: self._release,
            Act.GIVE_BACK: self._give_back,
        }
        return Statement(other[change.act], mine)

    def look(self, change: ReceiptChange, now_ms: int) -> Statement:
        """Look whether a lease has ended, in a write that changes nothing: it takes the lock that a take-over needs."""
        values = (*change.who, change.before, OnceInstant(now_ms))
        return Statement(self._look, values)

    def renew(self, claims: Sequence[OnceClaim], now_ms: int) -> Statement:
        """Renew the leases of running calls, by the store's clock. Returns the owners that still hold their keys."""
        values = [(*claim.who, claim.owner, OnceInstant(now_ms, claim.lease_ms)) for claim in claims]
        marks = ", ".join(["(?, ?, ?, ?)"] * len(values))
        return Statement(self._renew.format(marks), tuple(one for row in values for one in row))
