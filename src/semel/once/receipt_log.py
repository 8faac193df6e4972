"""The receipt of a key as a log on a Semel server: one stream a key, one entry a change, the last entry counts.

An entry is the whole receipt. A change is decided on the entries that were read, and appended with the number of the
next entry as its `Stream-Seq`: when another caller has appended meanwhile, the server refuses it, and the change is
decided again. No clock, no socket is known here; the time is that of the server.

The `Date` header has whole seconds, so a lease and a receipt end one second later than they say, and never too early.
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
"""The state of a key that was released or forgotten."""
RESOLUTION_MS = 1_000
"""How exact the server's time is."""


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
    """How long the stream is kept without being used."""

    def as_json(self) -> dict[str, Any]:
        """As it is appended."""
        return asdict(self)

    def is_over(self, now_ms: int) -> bool:
        """Whether the lease of a running call is over."""
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
"""What the members of an entry may be."""


class Decided(NamedTuple):
    """What becomes of a change."""

    entry: ReceiptEntry | None
    """What is appended; None for nothing."""
    rows: Sequence[Row]
    """What comes back, as a table of receipts would say it."""


def page_of(body: bytes) -> list[Any]:
    """The entries of an answer; `ValueError` for one that is no list."""
    try:
        page = json.loads(body)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    if not isinstance(page, list):
        raise ValueError("it is no list")
    return page


def last_entry(entries: Sequence[Any]) -> ReceiptEntry | None:
    """The receipt of a log; members that a later version has added are passed over. `ValueError` for another thing."""
    if not entries:
        return None
    last = entries[-1]
    if not isinstance(last, dict) or not {"scope", "key", "state"} <= last.keys():
        raise ValueError("its last entry is no receipt")
    entry = ReceiptEntry(**{name: value for name, value in last.items() if name in ReceiptEntry.__dataclass_fields__})
    if any(type(value) not in _KINDS[name] for name, value in asdict(entry).items()):
        raise ValueError("its last entry is no receipt")
    return entry


def needed_ttl_ms(claim: OnceClaim) -> int:
    """How long the stream of a claim has to be kept: through its lease, and its receipt behind that."""
    return claim.lease_ms + claim.keep_ms + 2 * RESOLUTION_MS


def too_short(claim: OnceClaim) -> InvalidKey:
    """The error of a claim whose receipt the server would drop too early."""
    return InvalidKey(
        f"The key {claim.who.key!r} was first used with a shorter keep and lease, which the server holds it to: use "
        "the same ones, or a new key."
    )


def decided(change: ReceiptChange, found: ReceiptEntry | None, now_ms: int) -> Decided:
    """Judge a change on the last entry of a log."""
    if change.act is Act.CLAIM:
        return _claimed(_call(change), found, now_ms)
    if found is None or found.state == FREE:
        return Decided(None, ())
    if change.act is Act.FIND:
        return Decided(None, [_row(found, now_ms)])
    entry = _changed(change, found, now_ms)
    return Decided(None, ()) if entry is None else Decided(entry, [(found.owner,)])


def _call(change: ReceiptChange) -> OnceClaim:
    assert change.claim is not None, "this act is one of a call"
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
    """The next entry; None when the change does not apply."""
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
"""What a call may do with a claim that is its own."""
