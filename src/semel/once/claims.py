"""The decisions of a function that runs once, as values: who may run it, and what a retry is told.

A function reaches outside of the database, so its receipt cannot be in the transaction of its effect. It is claimed
first, with a lease that is renewed while it runs, and finished after it:

| receipt found | decision |
|---|---|
| none, or expired | run: the key is claimed for this call |
| done | replay of its result |
| failed | the remembered exception is raised again |
| other arguments | `KeyMismatch` |
| running, lease in force | wait, or `InFlight` |
| running, lease over | its caller crashed or is cut off: unknown, and `on_crash` decides |

`refuse` raises `OutcomeUnknown`, `retry` runs again, and `ask` lets a function of the user find out.

Every statement is one transaction of its own. One that finishes after its lease was taken over changes nothing and is
told: `Fenced`. A crash between claim and finish leaves the claim, and so the unknown.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from semel.once.errors import KeyMismatch
from semel.once.identity import Identity
from semel.once.table import DONE, FAILED, NO_RESULT, RUNNING, Instant, Row, Statement, checked

JOINED = "joined"
"""In the place of a result while a call runs whose effect is in a transaction with the same key."""


class Move(Enum):
    """What a call does next."""

    RUN = "run"
    REPLAY = "replay"
    RAISE = "raise"
    NO_RESULT = "no result"
    WAIT = "wait"
    UNKNOWN = "unknown"


class Found(NamedTuple):
    """What a call found under its key."""

    move: Move
    result: str | None = None
    owner: str = ""
    """Who claimed it, when it is running or unknown."""
    created_ms: int = 0
    lease_left_ms: int = 0
    is_joined: bool = False
    """Whether its effect is in a transaction with the same key, so that it may be run again."""


class Claim(NamedTuple):
    """One call of a function."""

    who: Identity
    fingerprint: bytes
    owner: str
    """A text that no other call has."""
    keep_ms: int
    lease_ms: int


def judged(claim: Claim, row: Row) -> Found:
    """What a receipt says of a call; it has not expired."""
    known, state, result, owner, lease_left_ms, created_ms = row
    if bytes(known) != claim.fingerprint:
        raise KeyMismatch(claim.who.key)
    if state == DONE:
        return Found(Move.REPLAY, result, created_ms=int(created_ms))
    if state == FAILED:
        return Found(Move.RAISE, result, created_ms=int(created_ms))
    if state == NO_RESULT:
        return Found(Move.NO_RESULT, result, created_ms=int(created_ms))
    left = int(lease_left_ms or 0)
    move = Move.WAIT if left > 0 else Move.UNKNOWN
    return Found(move, None, owner or "", int(created_ms), max(0, left), is_joined=result == JOINED)


class ClaimStatements:
    """The statements on one table; each is one transaction."""

    def __init__(self, table: str) -> None:
        name = checked(table)
        is_over = "t.expires_at <= ? AND (t.state <> 'running' OR t.lease_until IS NULL OR t.lease_until <= ?)"
        self._claim = (
            f"INSERT INTO {name} AS t (scope, key, fingerprint, state, owner, lease_until, created_at, expires_at) "
            f"VALUES (?, ?, ?, '{RUNNING}', ?, ?, ?, ?) ON CONFLICT (scope, key) DO UPDATE SET "
            "fingerprint = excluded.fingerprint, state = excluded.state, result = NULL, owner = excluded.owner, "
            "lease_until = excluded.lease_until, created_at = excluded.created_at, expires_at = excluded.expires_at, "
            f"previous_at = t.created_at WHERE {is_over} RETURNING created_at"
        )
        self._find = (
            "SELECT fingerprint, state, result, owner, lease_until - ?, created_at "
            f"FROM {name} WHERE scope = ? AND key = ?"
        )
        mine = "WHERE scope = ? AND key = ? AND owner = ? AND state = 'running'"
        self._take_over = (
            f"UPDATE {name} SET owner = ?, lease_until = ? {mine} AND (lease_until IS NULL OR lease_until <= ?) "
            "RETURNING owner"
        )
        self._join = f"UPDATE {name} SET result = '{JOINED}' {mine} RETURNING owner"
        self._renew = f"UPDATE {name} SET lease_until = ? {mine} RETURNING owner"
        self._finish = (
            f"UPDATE {name} SET state = ?, result = ?, lease_until = NULL, expires_at = ? {mine} RETURNING owner"
        )
        self._release = f"DELETE FROM {name} {mine} RETURNING owner"
        self._forget = f"DELETE FROM {name} WHERE scope = ? AND key = ? RETURNING owner"
        self._resolve = (
            f"UPDATE {name} SET state = '{DONE}', result = ?, lease_until = NULL, expires_at = ? "
            f"WHERE scope = ? AND key = ? AND state = '{RUNNING}' AND (lease_until IS NULL OR lease_until <= ?) "
            "RETURNING owner"
        )

    def claim(self, claim: Claim, now_ms: int) -> Statement:
        """Claim the key, if it is free or expired: one row back."""
        now, lease = Instant(now_ms), Instant(now_ms, claim.lease_ms)
        ends = Instant(now_ms, claim.lease_ms + claim.keep_ms)
        return Statement(self._claim, (*claim.who, claim.fingerprint, claim.owner, lease, now, ends, now, now))

    def find(self, who: Identity, now_ms: int) -> Statement:
        """The receipt of a key, with what is left of its lease."""
        return Statement(self._find, (Instant(now_ms), *who))

    def take_over(self, claim: Claim, before: str, now_ms: int) -> Statement:
        """Take the place of a caller whose lease is over: one row back if no other call was quicker."""
        lease = Instant(now_ms, claim.lease_ms)
        return Statement(self._take_over, (claim.owner, lease, *claim.who, before, Instant(now_ms)))

    def renew(self, claim: Claim, now_ms: int) -> Statement:
        """Extend the lease: one row back while it is this call's."""
        return Statement(self._renew, (Instant(now_ms, claim.lease_ms), *claim.who, claim.owner))

    def join(self, claim: Claim) -> Statement:
        """Mark that the effect is in a transaction with the same key."""
        return Statement(self._join, (*claim.who, claim.owner))

    def abandon(self, claim: Claim, now_ms: int) -> Statement:
        """End the lease now: the outcome is unknown, and the next call need not wait."""
        return Statement(self._renew, (Instant(now_ms), *claim.who, claim.owner))

    def finish(self, claim: Claim, state: str, result: str | None, now_ms: int) -> Statement:
        """Store the result: one row back while the claim is this call's."""
        ends = Instant(now_ms, claim.keep_ms)
        return Statement(self._finish, (state, result, ends, *claim.who, claim.owner))

    def release(self, claim: Claim) -> Statement:
        """Give the key up: the next call runs."""
        return Statement(self._release, (*claim.who, claim.owner))

    def forget(self, who: Identity) -> Statement:
        """Forget a key, whatever its state is."""
        return Statement(self._forget, tuple(who))

    def resolve(self, who: Identity, result: str | None, keep_ms: int, now_ms: int) -> Statement:
        """Say what became of a call whose outcome is unknown."""
        return Statement(self._resolve, (result, Instant(now_ms, keep_ms), *who, Instant(now_ms)))
