"""The alert rule for audit lines: too many of one kind within a minute.

The rule is a function of the lines alone, their own times included, so reading the same lines again finds the
same alerts. A kind alerts once a minute at most, for as long as its burst lasts. An alert that is known from an earlier
run stands for its minute, before and after.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from semel.kernel.minute import SECONDS, Minute
from semel.kernel.utc import utc_ms, utc_text

ALERTS = {
    "AUTH_FAILURE": "BURST_AUTH_FAILURE",
    "PORT_MISMATCH": "BURST_PORT_MISMATCH",
    "IDEMPOTENCY_KEY_COLLISION": "BURST_COLLISION",
}
"""The alert of each event that is watched."""

MINUTE_MS = SECONDS * 1_000
MAX_KNOWN = 100_000


@dataclass(frozen=True, slots=True)
class Alert:
    """Raised by the line that was one too many."""

    ts_ms: int
    event: str
    count: int
    """How many there were in the minute that ended with it."""
    above: int
    remote_addr: str | None
    """The remote address of that line's request."""

    @property
    def facts(self) -> dict[str, Any]:
        """As it is written."""
        details = {"count": self.count, "above": self.above, "window_sec": SECONDS, "remote_addr": self.remote_addr}
        return {"ts": utc_text(self.ts_ms), "event": self.event, "details": details}


class Known:
    """Times of alerts, by their events; of very many, the latest."""

    def __init__(self, alerts: Iterable[tuple[str, int]] = ()) -> None:
        self._times: dict[str, list[int]] = {}
        for event, ts_ms in alerts:
            self.add(event, ts_ms)

    def add(self, event: str, ts_ms: int) -> None:
        """One more."""
        times = self._times.setdefault(event, [])
        insort(times, ts_ms)
        del times[:-MAX_KNOWN]

    def stands_for(self, event: str, ts_ms: int) -> bool:
        """Whether there is one less than a minute away from this time."""
        times = self._times.get(event, [])
        at = bisect_left(times, ts_ms - MINUTE_MS + 1)
        return at < len(times) and times[at] < ts_ms + MINUTE_MS


class Bursts:
    """Takes the lines in their order."""

    def __init__(self, above: int, *, is_loopback_exempt: bool, known: Known) -> None:
        self._above = above
        self._is_loopback_exempt = is_loopback_exempt
        self._known = known
        self._minutes = {name: Minute() for name in ALERTS}

    def take(self, line: object) -> Alert | None:
        """The alert that this line raises; a ValueError for what is no audit line."""
        ts_ms, name, details = _parts(line)
        address = details.get("remote_addr")
        if name not in ALERTS or (self._is_loopback_exempt and is_loopback(address)):
            return None
        minute = self._minutes[name]
        minute.add(ts_ms, 1 + _suppressed(details))
        count = minute.total(ts_ms)
        event = ALERTS[name]
        if count <= self._above or self._known.stands_for(event, ts_ms):
            return None
        self._known.add(event, ts_ms)
        return Alert(ts_ms, event, count, self._above, address if isinstance(address, str) else None)


def _parts(line: object) -> tuple[int, str, Mapping[str, Any]]:
    if not isinstance(line, dict):
        raise ValueError("not an object")
    ts, name, details = line.get("ts"), line.get("event"), line.get("details")
    if not isinstance(ts, str) or not isinstance(name, str) or not isinstance(details, dict):
        raise ValueError("not a line of an audit log")
    return utc_ms(ts), name, details


def _suppressed(details: Mapping[str, Any]) -> int:
    """The number of suppressed lines that the line stands for."""
    number = details.get("suppressed")
    return number if type(number) is int and number > 0 else 0


def is_loopback(address: object) -> bool:
    """Whether this is an address of the machine itself, with or without a port behind it."""
    if not isinstance(address, str):
        return False
    host = address
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        host = address.partition(":")[0]
    try:
        found = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return found.is_loopback or (mapped is not None and mapped.is_loopback)
