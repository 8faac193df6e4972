"""Connection limits: for all connections, for each remote address, and by free file descriptors.

Addresses are counted over both listeners, HTTP and gRPC, including WebSockets. An IPv6 client has at least a /64, so a
/64 counts as one address. Connections of reverse proxies, which a setting names, are not counted, because they serve
many clients.

A process that runs out of file descriptors cannot open a file or a database connection either, and the event loop
silently drops connections that it cannot accept. The last few descriptors are therefore reserved: a connection that
gets one of them is refused like one over any other limit. Refusals are counted by reason, and logged once a minute.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from typing import NamedTuple

from semel.kernel.errors import Refusal
from semel.server.http.remote_address import counted_as, networks_of
from semel.server.settings import ServerSettings

RESERVED_FILES = 64
RESERVED_SHARE = 8
"""At most 1 / RESERVED_SHARE of all file descriptors is reserved."""
LOG_SECONDS = 60.0
MAX_HEAD_FIELDS = 128
"""Header fields of a request; more get 431."""

CONNECTIONS, ADDRESS, DESCRIPTORS = "connections", "address", "descriptors"
REASONS = (CONNECTIONS, ADDRESS, DESCRIPTORS)

_log = logging.getLogger("semel.server")

_TOLD = {
    CONNECTIONS: "connections are refused: the limit http_max_connections is reached",
    ADDRESS: "connections are refused: one address has reached the limit http_max_connections_per_address",
    DESCRIPTORS: "out of file descriptors: connections are refused; raise the limit of open files (ulimit -n)",
}


class HttpLimits(NamedTuple):
    """Size limits and timeouts (in seconds) of one HTTP connection."""

    head_bytes: int
    head_fields: int
    silence_seconds: float
    head_seconds: float
    body_seconds: float
    idle_seconds: float
    stall_seconds: float

    @property
    def check_seconds(self) -> float:
        """The interval of connection checks, in seconds."""
        shortest = min(self.silence_seconds, self.head_seconds, self.idle_seconds, self.stall_seconds)
        return min(shortest / 6, 5.0)


def http_limits_of(settings: ServerSettings) -> HttpLimits:
    """The limits from the settings."""
    return HttpLimits(
        settings.http_max_head_bytes,
        MAX_HEAD_FIELDS,
        settings.http_silence_ms / 1_000,
        settings.http_head_ms / 1_000,
        settings.http_body_ms / 1_000,
        settings.http_idle_ms / 1_000,
        settings.http_stall_ms / 1_000,
    )


class ConnectionLimit:
    """Counts open connections, and decides about a new one; used on the event loop only."""

    def __init__(self, most: int, per_address: int, uncounted: str = "", files: int = 0) -> None:
        """`uncounted` has addresses and networks separated by commas; 0 means no limit on addresses or files."""
        self._most = most
        self._per_address = per_address
        self._uncounted = networks_of(uncounted)
        self._descriptors = files - min(RESERVED_FILES, files // RESERVED_SHARE)
        self._by_address: Counter[str] = Counter()
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._unlogged: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}

    def change(self, most: int, per_address: int) -> None:
        """Set other limits. Connections that are open stay, and those of an address count if they were counted."""
        self._most = most
        self._per_address = per_address

    def refusal(self, address: str, opened: int, descriptor: int, now: float) -> Refusal | None:
        """Why a connection is refused while `opened` are open; None if it is accepted, and then its address is
        counted.
        """
        key = self._key(address)
        if 0 < self._descriptors <= descriptor:
            return self._refuse(DESCRIPTORS, now, "Too many connections are open; try again in a moment.")
        if opened > self._most:
            return self._refuse(CONNECTIONS, now, "Too many connections are open; try again in a moment.")
        if key and self._by_address[key] >= self._per_address:
            told = "Too many connections are open from this address; try again in a moment."
            return self._refuse(ADDRESS, now, told)
        if key:
            self._by_address[key] += 1
        return None

    def leave(self, address: str) -> None:
        """Remove an accepted connection that has ended."""
        key = self._key(address)
        if key:
            self._by_address[key] -= 1
            if self._by_address[key] <= 0:
                del self._by_address[key]

    def check(self, now: float) -> None:
        """Call regularly: logs pending refusals, and checks whether a file descriptor is free."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._refuse(DESCRIPTORS, now, "")
        for reason in REASONS:
            self._report(reason, now)

    def _refuse(self, reason: str, now: float, told: str) -> Refusal:
        self.refused[reason] += 1
        self._unlogged[reason] += 1
        self._report(reason, now)
        return Refusal("OVERLOADED", told)

    def _report(self, reason: str, now: float) -> None:
        if self._unlogged[reason] and now - self._logged_at.get(reason, -LOG_SECONDS) >= LOG_SECONDS:
            _log.error(_TOLD[reason], extra={"refused": self._unlogged.pop(reason)})
            self._logged_at[reason] = now

    def _key(self, address: str) -> str:
        """The key under which an address is counted; empty if it is not counted."""
        return counted_as(address, self._uncounted) if self._per_address else ""


def connection_limit_of(settings: ServerSettings, files: int) -> ConnectionLimit:
    """The limit from the settings, for a process that may have this many open files; 0 means no limit."""
    return ConnectionLimit(
        settings.http_max_connections,
        settings.http_max_connections_per_address,
        settings.http_uncounted_addresses,
        files,
    )
