"""The audit log: what an operator must be able to look up afterwards, one JSON object a line.

A line is `{"ts": UTC, "event": NAME, "details": {...}}` in `audit.jsonl`. Noting one never waits for the disk and never
raises: lines gather in memory, bounded, and a thread of their own writes them, every half second or when somebody asks
for it with `written()`. Whoever may not answer before the line is in the file awaits that, for a second at most: a disk
that hangs delays such an answer and nothing else.

When the disk fails, lines wait for it to come back and each try is counted; those beyond the bound are lost, counted,
and told in a line `AUDIT_LINES_LOST` once there is room again. A crash loses the lines of the last half second.

Callers give no token, no full key, no full hash and nothing of a body; the log cuts what is too long, and judges no
content.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from semel.kernel.utc import utc_text
from semel.kernel.world import World
from semel.server.line_file import LineFile

FILE_NAME = "audit.jsonl"
MAX_WAITING_BYTES = 4 * 1024 * 1024
MAX_TEXT = 1_024
MAX_LINE_BYTES = 16 * 1024
FLUSH_SECONDS = 0.5
WAIT_SECONDS = 1.0
RARELY_MS = 10_000

_log = logging.getLogger("semel.audit")


class _Held(NamedTuple):
    """What is known of an event that is told rarely."""

    told_at: int
    """Monotonic time of its last line."""
    suppressed: int = 0
    """How many came since."""
    ts_ms: int = 0
    details: Mapping[str, Any] = {}
    """When the last of these came, and with what."""


class AuditLog:
    """Notes may come from any thread; the rest belongs to the loop."""

    def __init__(self, folder: Path, world: World) -> None:
        self.lines = 0
        self.lost_lines = 0
        self.write_errors = 0
        self.is_broken = False
        self._world = world
        self._file = LineFile(folder / FILE_NAME)
        self._guard = threading.Lock()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._untold = 0
        self._unfinished = 0
        self._held: dict[str, _Held] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="semel-audit")
        self._turn = asyncio.Lock()
        self._coming: asyncio.Task[None] | None = None
        self._is_closed = False

    def note(self, event: str, details: Mapping[str, Any]) -> None:
        """One line, in the file within a second."""
        self._note(self._world.wall_ms(), event, details)

    def note_rarely(self, event: str, details: Mapping[str, Any]) -> None:
        """The first at once, then one line in ten seconds, which says how many it stands for besides itself."""
        now, ts_ms = self._world.monotonic_ms(), self._world.wall_ms()
        with self._guard:
            held = self._held.get(event)
            is_due = held is None or now - held.told_at >= RARELY_MS
            if held is None or is_due:
                self._held[event] = _Held(now)
            else:
                self._held[event] = _Held(held.told_at, held.suppressed + 1, ts_ms, dict(details))
        if is_due:
            self._note(ts_ms, event, _counting(details, 0 if held is None else held.suppressed))

    async def written(self) -> None:
        """Return when everything noted so far is in the file, or when it turns out that the disk does not take it."""
        if self._is_closed:
            return
        if self._coming is None:
            self._coming = asyncio.create_task(self._flush())
        done, _ = await asyncio.wait({self._coming}, timeout=WAIT_SECONDS)
        if not done:
            self._fail("it does not answer")

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._tell_held(self._world.monotonic_ms() - RARELY_MS)
            if self._has_work:
                await self.written()

    def close(self) -> None:
        """Write the rest; what is noted from here on is not."""
        if self._is_closed:
            return
        self._is_closed = True
        self._tell_held(self._world.monotonic_ms())
        if self._has_work:
            wait({self._writer.submit(self._write)}, timeout=WAIT_SECONDS)
        self._writer.submit(self._file.close)
        self._writer.shutdown(wait=False)

    @property
    def _has_work(self) -> bool:
        # A disk that was given up just as it answered is asked again, though there is nothing left to write.
        return bool(self._waiting or self._file.is_behind or self.is_broken)

    def _note(self, ts_ms: int, event: str, details: Mapping[str, Any]) -> None:
        line = _line(ts_ms, event, details)
        with self._guard:
            if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self.lost_lines += 1
                self._untold += 1
            else:
                self._waiting.append(line)
                self._waiting_bytes += len(line)

    def _tell_held(self, told_before: int) -> None:
        """The last one of each event that was held back, for itself and the others, if its line is so old."""
        now = self._world.monotonic_ms()
        with self._guard:
            due = [(name, one) for name, one in self._held.items() if one.suppressed and one.told_at <= told_before]
            self._held.update((name, _Held(now)) for name, _ in due)
        for name, one in due:
            self._note(one.ts_ms, name, _counting(one.details, one.suppressed - 1))

    async def _flush(self) -> None:
        async with self._turn:
            self._coming = None  # who comes from here on may have noted what this flush does not see
            if not self._is_closed:
                await asyncio.get_running_loop().run_in_executor(self._writer, self._write)

    def _write(self) -> None:
        """In the writer's thread."""
        try:
            if self._file.is_behind:
                self._append(b"")
            lines = self._take()
            if lines:
                self._unfinished = len(lines)
                self._append(b"".join(lines))
        except OSError as error:
            self._fail(error.strerror or type(error).__name__)
        else:
            self._recover()

    def _append(self, lines: bytes) -> None:
        self._file.append(lines)
        self.lines += self._unfinished
        self._unfinished = 0

    def _take(self) -> list[bytes]:
        """Everything that waits, and a line about what could not."""
        now = self._world.wall_ms()
        with self._guard:
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            untold, self._untold = self._untold, 0
        return [*lines, _line(now, "AUDIT_LINES_LOST", {"lines": untold})] if untold else lines

    def _fail(self, reason: str) -> None:
        self.write_errors += 1
        if not self.is_broken:
            self.is_broken = True
            _log.error("the audit log cannot be written", extra={"reason": reason})

    def _recover(self) -> None:
        if self.is_broken:
            self.is_broken = False
            _log.info("the audit log is written again")


def _counting(details: Mapping[str, Any], suppressed: int) -> Mapping[str, Any]:
    return {**details, "suppressed": suppressed} if suppressed else details


def _line(ts_ms: int, event: str, details: Mapping[str, Any]) -> bytes:
    """One line, whatever it is made of."""
    line = {"ts": utc_text(ts_ms), "event": event, "details": details}
    text = _dumped(line)
    if len(text) > MAX_TEXT:
        text = _dumped(line | {"details": {name: _shortened(value) for name, value in details.items()}})
    if len(text) > MAX_LINE_BYTES:
        text = _dumped(line | {"details": {"omitted": "too_large"}})
    return text


def _shortened(value: Any) -> Any:
    return value[:MAX_TEXT] if isinstance(value, str) else value


def _dumped(line: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(line, default=_plain, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number beyond 64 bits
        return json.dumps(line, default=_plain, separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
