"""Rate limit of audit log lines for each source: a burst, then one at an interval; the rest are counted.

A line that is held back is not lost without a word. The next line of its source that is written says how many were
left out; when none follows, the last one that was held back is written in the end, for itself and for the others. So
the lines of a source and the numbers in them add up to what happened.

Sources are kept apart up to a bound. Beyond it the new ones of an event share one place, with one rate together. Pure:
times are given with each call, in milliseconds of a clock that never falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

MAX_SOURCES = 1_024
TELL_MS = 10_000
"""Suppressed lines are reported after this time, if no line of the source was written meanwhile."""
FORGET_MS = 1_000
"""At the limit, idle sources are searched at most once in this time."""
MAX_REASON = 64
MAX_HELD_TEXT = 1_024
"""Characters of a text that are kept of a line that is held back."""


class LineRate(NamedTuple):
    """The rate limit of a source: the burst in lines, and the time until one more."""

    burst: int
    refill_ms: int


class LineSource(NamedTuple):
    """The key that lines are paced by."""

    event: str
    address: str = ""
    reason: str = ""


class HeldLine(NamedTuple):
    """A delayed line, written for itself and for the suppressed lines before it."""

    event: str
    ts_ms: int
    details: Mapping[str, Any]
    left_out: int
    """The number of suppressed lines that it stands for besides itself."""


@dataclass(slots=True)
class _Account:
    """The state of one source."""

    rate: LineRate
    left: int
    """Lines that may be written at once."""
    refilled_at: int
    told_at: int
    held: int = 0
    """Lines that were held back since the last one that was written; of the latest of them, time and details."""
    ts_ms: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)

    def refill(self, now: int) -> None:
        gained = max(0, now - self.refilled_at) // self.rate.refill_ms
        if gained:
            self.left = min(self.rate.burst, self.left + gained)
            is_full = self.left == self.rate.burst
            self.refilled_at = now if is_full else self.refilled_at + gained * self.rate.refill_ms

    def is_quiet(self, now: int) -> bool:
        self.refill(now)
        return self.held == 0 and self.left == self.rate.burst


class LinePace:
    """The rate limit of all sources; belongs to one thread at a time."""

    def __init__(self) -> None:
        self._accounts: dict[LineSource, _Account] = {}
        self._looked_at: int | None = None

    def take(self, source: LineSource, rate: LineRate, now: int, ts_ms: int, details: Mapping[str, Any]) -> int | None:
        """The number of suppressed lines before a line to write now; None if this line is suppressed."""
        account = self._accounts.get(source) or self._opened(source, rate, now)
        account.refill(now)
        if account.left == 0:
            account.held += 1
            account.ts_ms, account.details = ts_ms, {name: _cut(value) for name, value in details.items()}
            return None
        if account.left == rate.burst:
            account.refilled_at = now
        account.left -= 1
        account.told_at = now
        left_out, account.held = account.held, 0
        return left_out

    def due(self, now: int, *, is_end: bool = False) -> list[HeldLine]:
        """Lines to be written of sources that have been waiting long enough; at the end of all that wait."""
        lines = []
        for source, account in self._accounts.items():
            if account.held and (is_end or now - account.told_at >= TELL_MS):
                lines.append(HeldLine(source.event, account.ts_ms, account.details, account.held - 1))
                account.refill(now)
                account.left = max(0, account.left - 1)
                account.refilled_at = account.told_at = now
                account.held = 0
        return lines

    def _opened(self, source: LineSource, rate: LineRate, now: int) -> _Account:
        if len(self._accounts) >= MAX_SOURCES:
            self._forget_quiet(now)
        if len(self._accounts) >= MAX_SOURCES:
            source = LineSource(source.event, "*")
        account = self._accounts.get(source)
        if account is None:
            account = self._accounts[source] = _Account(rate, rate.burst, now, now)
        return account

    def _forget_quiet(self, now: int) -> None:
        if self._looked_at is None or now - self._looked_at >= FORGET_MS:
            self._looked_at = now
            kept = {source: account for source, account in self._accounts.items() if not account.is_quiet(now)}
            self._accounts = kept


def source_of(event: str, address: object, reason: object) -> LineSource:
    """The key that a line is paced by; an IPv6 network is one key, because one caller has all of its addresses."""
    return LineSource(event, _network(str(address or "")), str(reason or "")[:MAX_REASON])


def _cut(value: Any) -> Any:
    return value[:MAX_HELD_TEXT] if isinstance(value, str) else value


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Address(int(found) >> 64 << 64))
    return str(found)
