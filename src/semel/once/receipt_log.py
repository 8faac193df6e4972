"""The receipt of a key as a log on a Semel server: one stream per key, one entry per change, the last entry counts.

An entry is the whole receipt. A change is decided on the entries that were read, and appended with the number of the
next entry as its `Stream-Seq`: if another caller has appended meanwhile, the server refuses it, and the change is
decided again. This module uses no clock and no socket; the time is the server's. Its `Date` header has whole seconds,
so leases and receipts end up to one second late, and never early.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from semel.once.claims import JOINED, Act, OnceClaim, ReceiptChange
from semel.once.errors import InvalidKey
from semel.once.table import DONE, RUNNING, Row

FREE = "free"
"""The state of a released or forgotten key."""
RESOLUTION_MS = 1_000
"""Resolution of the server's time, in milliseconds."""


@dataclass(frozen=True)
class ReceiptEntry:
    """One entry: the receipt from now on. Times are milliseconds since 1970."""

    scope: str
    key: str
    state: str
    fingerprint: str = ""
    result: str | None = None
    owner: str = ""
    lease_until: int = 0
    created_at: int = 0
    expires_at: int = 0
    ttl_ms: int = 0
    """How long the server keeps an unused stream, in milliseconds."""

    def as_json(self) -> dict[str, Any]:
        """The JSON of the entry."""
        return asdict(self)

    def is_over(self, now_ms: int) -> bool:
        """Whether the lease of a running call has ended."""
        return now_ms >= self.lease_until + RESOLUTION_MS

    def is_free(self, now_ms: int) -> bool:
        """Whether the key may be claimed."""
        if self.state == FREE:
            return True
        has_expired = now_ms >= self.expires_at + RESOLUTION_MS
        return has_expired and (self.state != RUNNING or self.is_over(now_ms))


_KINDS: Mapping[str, tuple[type, ...]] = {
    name: (str, type(None)) if name == "result" else (int,) if name.endswith(("_at", "_until", "_ms")) else (str,)
    for name in ReceiptEntry.__dataclass_fields__
}
"""The types of an entry's members."""


class Decided(NamedTuple):
    """The decision on a change."""

    entry: ReceiptEntry | None
    """The entry to append, or None."""
    rows: Sequence[Row]
    """The rows that a table of receipts would return."""


def page_of(body: bytes) -> list[Any]:
    """The entries of an answer. Raises `ValueError` if it is not a list."""
    try:
        page = json.loads(body)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    if not isinstance(page, list):
        raise ValueError("it is not a list")
    return page


def last_entry(entries: Sequence[Any]) -> ReceiptEntry | None:
    """The receipt of a log. Members of later versions are ignored. Raises `ValueError` if it is not a receipt."""
    if not entries:
        return None
    last = entries[-1]
    if not isinstance(last, dict) or not {"scope", "key", "state"} <= last.keys():
        raise ValueError("its last entry is not a receipt")
    entry = ReceiptEntry(**{name: value for name, value in last.items() if name in ReceiptEntry.__dataclass_fields__})
    if any(type(value) not in _KINDS[name] for name, value in asdict(entry).items()):
        raise ValueError("its last entry is not a receipt")
    return entry


def needed_ttl_ms(claim: OnceClaim) -> int:
    """How long the server must keep the stream of a claim: its lease and then its receipt, in milliseconds."""
    return claim.lease_ms + claim.keep_ms + 2 * RESOLUTION_MS


def too_short(claim: OnceClaim) -> InvalidKey:
    """The error for a claim whose receipt the server would delete too early."""
    return InvalidKey(
        f"The key {claim.who.key!r} was first used with a shorter keep and lease, which the server keeps: use "
        "the same values, or a new key."
    )


def decided(change: ReceiptChange, found: ReceiptEntry | None, now_ms: int) -> Decided:
    """Decide a change on the last entry of a log."""
    if change.act is Act.CLAIM:
        return _claimed(_call(change), found, now_ms)
    if found is None or found.state == FREE:
        return Decided(None, ())
    if change.act is Act.FIND:
        return Decided(None, [_row(found, now_ms)])
    entry = _changed(change, found, now_ms)
    return Decided(None, ()) if entry is None else Decided(entry, [(found.owner,)])


def _call(change: ReceiptChange) -> OnceClaim:
    assert change.claim is not None, "this operation belongs to a call"
    return change.claim


def _claimed(claim: OnceClaim, found: ReceiptEntry | None, now_ms: int) -> Decided:
    if found is not None and not found.is_free(now_ms):
        return Decided(None, ())
    ttl_ms = needed_ttl_ms(claim)
    if found is not None and found.ttl_ms < ttl_ms:
        raise too_short(claim)
    entry = ReceiptEntry(
        *claim.who,
        RUNNING,
        claim.fingerprint.hex(),
        owner=claim.owner,
        lease_until=now_ms + claim.lease_ms,
        created_at=now_ms,
        expires_at=now_ms + claim.lease_ms + claim.keep_ms,
        ttl_ms=ttl_ms if found is None else found.ttl_ms,
    )
    return Decided(entry, [(now_ms,)])


def _row(found: ReceiptEntry, now_ms: int) -> Row:
    left_ms = found.lease_until + RESOLUTION_MS - now_ms if found.state == RUNNING else None
    return bytes.fromhex(found.fingerprint), found.state, found.result, found.owner, left_ms, found.created_at


def _changed(change: ReceiptChange, found: ReceiptEntry, now_ms: int) -> ReceiptEntry | None:
    """The next entry, or None if the change does not apply."""
    if change.act is Act.FORGET:
        return replace(found, state=FREE, result=None)
    if found.state != RUNNING:
        return None
    if change.act is Act.RESOLVE:
        ends = now_ms + change.keep_ms
        return replace(found, state=DONE, result=change.result, expires_at=ends) if found.is_over(now_ms) else None
    claim = _call(change)
    if change.act is Act.TAKE_OVER:
        if found.owner != change.before or not found.is_over(now_ms):
            return None
        return replace(found, owner=claim.owner, lease_until=now_ms + claim.lease_ms)
    return _OWN[change.act](change, claim, found, now_ms) if found.owner == claim.owner else None


def _finished(change: ReceiptChange, claim: OnceClaim, found: ReceiptEntry, now_ms: int) -> ReceiptEntry:
    return replace(found, state=change.state, result=change.result, expires_at=now_ms + claim.keep_ms)


_OWN: Mapping[Act, Callable[[ReceiptChange, OnceClaim, ReceiptEntry, int], ReceiptEntry]] = {
    Act.RENEW: lambda _, claim, found, now_ms: replace(found, lease_until=now_ms + claim.lease_ms),
    Act.ABANDON: lambda _, claim, found, now_ms: replace(found, lease_until=now_ms - RESOLUTION_MS),
    Act.JOIN: lambda _, claim, found, now_ms: replace(found, result=JOINED),
    Act.RELEASE: lambda _, claim, found, now_ms: replace(found, state=FREE, result=None),
    Act.FINISH: _finished,
}
"""Operations of a call on its own claim."""
