"""Alerts from the audit log: follows both of its files, and finds bursts of events.

At startup the whole log is read, so that earlier events are found too. Alerts that are in `alerts.jsonl` are not raised
again: the file is written before an alert is shown, and a later run needs nothing else. The rule depends only on the
lines and their times, so the same lines give the same alerts. A kind of event alerts at most once a minute during a
burst.

No file stays open or locked between two reads. A file is identified by its inode and its first bytes, because rotation
renames it. Names are read from the newest to the oldest, so that no file is missed during a rename.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from semel.kernel.clock import utc_ms, utc_text
from semel.server.ops.meter import MINUTE_SECONDS, Minute
from semel.server.ops.rotated_file import KEPT, LineFile, kept_name

PIECE_BYTES = 1024 * 1024
HEAD_BYTES = 40  # includes the time of the first line; no line of the log is shorter


class _FileIdentity(NamedTuple):
    device: int
    inode: int
    head: bytes


class LogTail:
    """Continues where the last read ended."""

    def __init__(self, path: Path) -> None:
        self._names = [path, *(kept_name(path, number) for number in range(1, KEPT + 1))]
        self._read: dict[_FileIdentity, int] = {}

    def new_lines(self) -> Iterator[bytes]:
        """Complete lines since the last read, without line breaks, oldest file first."""
        with ExitStack() as opened:
            files: dict[_FileIdentity, BinaryIO] = {}
            for name in self._names:
                try:
                    file: BinaryIO = opened.enter_context(name.open("rb"))
                except FileNotFoundError:
                    continue
                head = file.read(HEAD_BYTES)
                if len(head) == HEAD_BYTES:
                    status = os.fstat(file.fileno())
                    files.setdefault(_FileIdentity(status.st_dev, status.st_ino, head), file)
            self._read = {identity: self._read.get(identity, 0) for identity in files}
            for identity, file in reversed(files.items()):
                yield from self._rest(identity, file)

    def _rest(self, identity: _FileIdentity, file: BinaryIO) -> Iterator[bytes]:
        size = os.fstat(file.fileno()).st_size  # the rest is for the next read
        file.seek(self._read[identity])
        while piece := file.read(min(PIECE_BYTES, max(0, size - self._read[identity]))):
            end = piece.rfind(b"\n") + 1
            if end == 0 and len(piece) < PIECE_BYTES:
                return  # the line is still being written
            self._read[identity] += end or len(piece)  # text longer than any line is skipped
            file.seek(self._read[identity])
            yield from piece[:end].splitlines()


ALERTS = {
    "AUTH_FAILURE": "BURST_AUTH_FAILURE",
    "PORT_MISMATCH": "BURST_PORT_MISMATCH",
    "IDEMPOTENCY_KEY_COLLISION": "BURST_COLLISION",
}
"""The alert of each event that is watched."""

MINUTE_MS = MINUTE_SECONDS * 1_000
MAX_KNOWN = 100_000


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert, raised by the line that exceeded the limit."""

    ts_ms: int
    event: str
    count: int
    """Number of events in the minute up to this line."""
    above: int
    remote_addr: str | None
    """The remote address of that line's request."""

    @property
    def facts(self) -> dict[str, Any]:
        """The alert as a JSON object."""
        details = {
            "count": self.count,
            "above": self.above,
            "window_sec": MINUTE_SECONDS,
            "remote_addr": self.remote_addr,
        }
        return {"ts": utc_text(self.ts_ms), "event": self.event, "details": details}


class KnownAlerts:
    """Times of alerts by event; at most a fixed number, the latest."""

    def __init__(self, alerts: Iterable[tuple[str, int]] = ()) -> None:
        self._times: dict[str, list[int]] = {}
        for event, ts_ms in alerts:
            self.add(event, ts_ms)

    def add(self, event: str, ts_ms: int) -> None:
        """Add an alert."""
        times = self._times.setdefault(event, [])
        insort(times, ts_ms)
        del times[:-MAX_KNOWN]

    def stands_for(self, event: str, ts_ms: int) -> bool:
        """Whether there is an alert within a minute of this time."""
        times = self._times.get(event, [])
        at = bisect_left(times, ts_ms - MINUTE_MS + 1)
        return at < len(times) and times[at] < ts_ms + MINUTE_MS


class Bursts:
    """Detects bursts in lines, in order."""

    def __init__(self, above: int, *, is_loopback_exempt: bool, known: KnownAlerts) -> None:
        self._above = above
        self._is_loopback_exempt = is_loopback_exempt
        self._known = known
        self._minutes = {name: Minute() for name in ALERTS}

    def take(self, line: object) -> Alert | None:
        """The alert that this line raises, or None. Raises ValueError if it is not an audit line."""
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
    """The number of suppressed lines that this line reports."""
    number = details.get("suppressed")
    return number if type(number) is int and number > 0 else 0


def is_loopback(address: object) -> bool:
    """Whether this is a loopback address, with or without a port."""
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


ALERT_FILE_NAME = "alerts.jsonl"


def alerts_of(
    paths: Iterable[Path], bursts: Bursts, is_over: Callable[[], bool], tell_strange: Callable[[int], None]
) -> Iterator[Alert]:
    """The alerts of existing lines, then of new ones, until `is_over`, which waits for the time between two looks.

    `tell_strange` is called with the number of lines that are no lines of an audit log.
    """
    files = [LogTail(path) for path in paths]
    while True:
        strange = 0
        for text in chain.from_iterable(one.new_lines() for one in files):
            try:
                alert = bursts.take(json.loads(text))
            except (ValueError, RecursionError):
                strange += 1
                continue
            if alert is not None:
                yield alert
        if strange:
            tell_strange(strange)
        if is_over():
            return


def known_alerts(folder: Path) -> KnownAlerts:
    """The alerts of earlier runs."""
    return KnownAlerts(_known(folder))


def _known(folder: Path) -> Iterator[tuple[str, int]]:
    for text in LogTail(folder / ALERT_FILE_NAME).new_lines():
        try:
            line = json.loads(text)
            yield str(line["event"]), utc_ms(line["ts"])
        except (ValueError, KeyError, TypeError):
            continue  # a truncated line is ignored; its alert is raised again


class AlertFile:
    """The file of alerts, created with the first one."""

    def __init__(self, folder: Path) -> None:
        self._file = LineFile(folder / ALERT_FILE_NAME)

    def write(self, alert: Alert) -> None:
        """Append an alert. Raises OSError if it cannot be written."""
        self._file.append(json.dumps(alert.facts, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
