"""The rate limit of audit lines: a burst of one source is written, then one line per interval; the rest are counted.

A suppressed line is not lost silently. The next written line of its source says how many were left out; if none
follows, the last suppressed line is written after a delay, for itself and for the others. The lines of a source and the
counts in them therefore add up to the number of events.

Sources are kept apart up to a limit. Beyond it the new sources of an event share one entry and one rate. Pure: each
call gets the time, in milliseconds of a clock that never falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

MAX_SOURCES = 1_024
TELL_MS = 10_000
"""Suppressed lines are reported after this many milliseconds, if no line of the source was written meanwhile."""
FORGET_MS = 1_000
"""At the limit, idle sources are searched for at most once in this many milliseconds."""
MAX_REASON = 64
MAX_HELD_TEXT = 1_024
"""Limit on the characters of a text in a suppressed line."""


class LineRate(NamedTuple):
    """The rate limit of a source: the burst in lines, and the milliseconds until one more is allowed."""

    burst: int
    refill_ms: int


class LineSource(NamedTuple):
    """The key of a rate limit."""

    event: str
    address: str = ""
    reason: str = ""


class HeldLine(NamedTuple):
    """A delayed line, written for itself and for the suppressed lines before it."""

    event: str
    ts_ms: int
    details: Mapping[str, Any]
    left_out: int
    """The number of suppressed lines that it represents besides itself."""


@dataclass(slots=True)
class _Account:
    """The state of one source."""

    rate: LineRate
    left: int
    """The number of lines that may be written at once."""
    refilled_at: int
    told_at: int
    held: int = 0
    """The number of lines suppressed since the last written one; the time and details of the latest follow."""
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
    """The rate limits of all sources; used by one thread at a time."""

    def __init__(self) -> None:
        self._accounts: dict[LineSource, _Account] = {}
        self._looked_at: int | None = None

    def take(
        self, source: LineSource, rate: LineRate, now: int, ts_ms: int, lines: Sequence[Mapping[str, Any]]
    ) -> list[int]:
        """Which of these lines of one time are written now: the first of them, as many as numbers are returned, and
        each number says how many lines before it were suppressed. The others are suppressed.
        """
        account = self._accounts.get(source) or self._opened(source, rate, now)
        account.refill(now)
        left_out: list[int] = []
        written = min(account.left, len(lines))
        if written:
            if account.left == rate.burst:
                account.refilled_at = now
            account.left -= written
            account.told_at = now
            left_out = [account.held, *[0] * (written - 1)]
            account.held = 0
        if written < len(lines):
            account.held += len(lines) - written
            account.ts_ms, account.details = ts_ms, {name: _cut(value) for name, value in lines[-1].items()}
        return left_out

    def due(self, now: int, *, is_end: bool = False) -> list[HeldLine]:
        """Suppressed lines of sources that have waited long enough; at the end those of all sources."""
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
    """The key of the rate limit for a line; an IPv6 network is one key, because one caller has all of its addresses."""
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
