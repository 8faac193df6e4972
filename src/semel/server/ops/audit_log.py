"""The audit log: one JSON object for each line, for events that an operator must be able to look up later.

A line is `{"ts": UTC, "event": NAME, "details": {...}}`. Important events go to `audit-important.jsonl`, all others to
`audit.jsonl`, so that a flood of ordinary events displaces no important one. The table `CLASSES` gives the class of
each event. Lines that any client can cause are rate limited (`audit_rate_limit`); the next line says how many were left
out.

`note` never waits for the disk and never raises: lines are queued in memory, bounded, and a separate thread writes them
every half second or when `written()` is called. An answer that may leave only after its line is in the file awaits
`written()` for at most one second: a disk that hangs delays only this answer.

When the disk fails, lines wait until it works again and each attempt is counted; lines beyond the limit of the queue
are lost, counted, and reported in a line `AUDIT_LINES_LOST` when there is room again. A crash loses the lines of the
last half second, and the count of rate-limited lines of the last ten seconds.

Written lines are synced every two seconds: a power cut loses those of the last two seconds.

Callers pass no token, no complete key, no complete hash and no part of a body; the log truncates long texts, but does
not inspect content.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from semel.kernel.clock import World, utc_text
from semel.server.ops.audit_rate_limit import LinePace, LineRate, LineSource, source_of
from semel.server.ops.rotated_file import MAX_BYTES, LineFile, LineQueue

IMPORTANT_LINES = LineRate(burst=1_000, refill_ms=1_000)
PACED_LINES = LineRate(burst=50, refill_ms=10_000)


class LineClass(Enum):
    """The class of an audit log event: where its lines are written, and how they are rate limited."""

    IMPORTANT = "in a separate file"
    EACH = "one line each, because every one is a committed change"
    PACED = "one line for each of the first events of a kind, address and reason; the rest are counted"
    RARE = "one line in ten seconds for all events of a kind; the rest are counted"

    @property
    def rate(self) -> LineRate | None:
        """The rate limit of one source; None for no limit."""
        return _RATES.get(self)


_RATES: Mapping[LineClass, LineRate] = {
    LineClass.IMPORTANT: IMPORTANT_LINES,
    LineClass.PACED: PACED_LINES,
    LineClass.RARE: LineRate(burst=1, refill_ms=10_000),
}

CLASSES: Mapping[str, LineClass] = {
    "IDEMPOTENCY_KEY_COLLISION": LineClass.IMPORTANT,
    "LEDGER_KEY_COLLISION": LineClass.IMPORTANT,
    "LEASE_FENCED": LineClass.IMPORTANT,
    "RESULT_CONFLICT": LineClass.IMPORTANT,
    "RESULT_INTEGRITY_FAIL": LineClass.IMPORTANT,
    "IDEMPOTENCY_KEY_RELEASED": LineClass.IMPORTANT,
    "JOB_REVIVED": LineClass.IMPORTANT,
    "JOB_CANCELLED": LineClass.IMPORTANT,
    "TOKEN_ROTATION_FINALIZED": LineClass.IMPORTANT,
    "TOKEN_CREATED": LineClass.IMPORTANT,
    "TOKEN_ROTATED": LineClass.IMPORTANT,
    "TOKEN_REVOKED": LineClass.IMPORTANT,
    "LEASE_REAP": LineClass.EACH,
    "OFFER_LAPSED": LineClass.EACH,
    "JOB_TIMEOUT": LineClass.EACH,
    "RETRY_SCHEDULED": LineClass.EACH,
    "RETRY_EXHAUSTED": LineClass.EACH,
    "DLQ_ENQUEUE": LineClass.EACH,
    "DLQ_EVICT": LineClass.EACH,
    "SCHEDULE_SKIPPED": LineClass.EACH,
    "IDEMPOTENCY_EVICT": LineClass.EACH,
    "AUDIT_LINES_LOST": LineClass.EACH,
    "AUTH_FAILURE": LineClass.PACED,
    "IDEMPOTENCY_HIT": LineClass.PACED,
    "ORIGIN_REFUSED": LineClass.PACED,
    "PORT_MISMATCH": LineClass.PACED,
    "QUOTA_EXCEEDED": LineClass.PACED,
    "BACKPRESSURE_DROP": LineClass.RARE,
    "INFLIGHT_SATURATED": LineClass.RARE,
    "RATE_LIMITED": LineClass.RARE,
    "IDEMPOTENCY_STORE_FULL": LineClass.RARE,
    "LEDGER_SEQUENCE_GAP": LineClass.RARE,
    "TOKEN_ACCEPTED_NEXT": LineClass.RARE,
    "TOKEN_RETIRED": LineClass.RARE,
}


def class_of(event: str) -> LineClass:
    """The class of an event; `EACH` if the table does not name it."""
    return CLASSES.get(event, LineClass.EACH)


FILE_NAME = "audit.jsonl"
IMPORTANT_NAME = "audit-important.jsonl"
NAMES = (IMPORTANT_NAME, FILE_NAME)
MAX_TEXT = 1_024
MAX_LINE_BYTES = 16 * 1024
FLUSH_SECONDS = 0.5
FLUSHES_OF_A_SYNC = 4
WAIT_SECONDS = 1.0

_log = logging.getLogger("semel.audit")


class AuditLog:
    """Writes audit log lines. `note` is thread-safe; the other methods are for the event loop only."""

    def __init__(self, folder: Path, world: World, max_bytes: int = MAX_BYTES) -> None:
        self.write_errors = 0
        self.is_broken = False
        self._world = world
        self._queues = tuple(LineQueue(LineFile(folder / name, max_bytes), self._loss) for name in NAMES)
        self._important, self._ordinary = self._queues
        self._guard = threading.Lock()
        self._pace = LinePace()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="semel-audit")
        self._turn = asyncio.Lock()
        self._coming: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def lines(self) -> int:
        """The number of lines written."""
        return sum(queue.lines for queue in self._queues)

    @property
    def lost_lines(self) -> int:
        """The number of lines lost because the queue was full."""
        return sum(queue.lost_lines for queue in self._queues)

    def note(self, event: str, details: Mapping[str, Any], address: str = "") -> None:
        """Queue one line; it is in its file within a second, or counted in a later line.

        The rate limit is that of the address which caused the line: `address`, or the one in the details.
        """
        kind = class_of(event)
        source = LineSource(event)
        if kind is not LineClass.RARE:
            source = source_of(event, address or details.get("remote_addr"), details.get("reason"))
        self._note(event, details, kind, source)

    def note_all(self, event: str, details: Sequence[Mapping[str, Any]], address: str) -> None:
        """As `note` for each of these, in order: events of one kind, of one address and without a reason."""
        self._note_all(event, details, class_of(event), source_of(event, address, None))

    def denied(self, where: Mapping[str, str]) -> None:
        """Note that an authenticated caller was refused for lack of rights; the same line for every surface and
        protocol.
        """
        self.note("AUTH_FAILURE", {"reason": "missing_role", **where})

    def note_rarely(self, event: str, details: Mapping[str, Any]) -> None:
        """Write the first line at once, then one line in ten seconds, which says how many others it represents."""
        self._note(event, details, LineClass.RARE, LineSource(event))

    async def written(self) -> None:
        """Return when all lines noted so far are in their file, or when writing has failed or timed out."""
        if self._is_closed:
            return
        if self._coming is None:
            self._coming = asyncio.create_task(self._flush())
        done, _ = await asyncio.wait({self._coming}, timeout=WAIT_SECONDS)
        if not done:
            self._fail("the disk does not answer")

    async def run(self) -> None:
        """Write queued lines, and sync them, until cancelled."""
        synced = 0
        for flush in count(1):
            await asyncio.sleep(FLUSH_SECONDS)
            self._tell_held(is_end=False)
            if self._has_work:
                await self.written()
            if flush % FLUSHES_OF_A_SYNC == 0 and self.lines != synced:
                synced = self.lines
                self._writer.submit(self._sync)  # not awaited: a disk that hangs is noticed by the next write

    def close(self) -> None:
        """Write the remaining lines; later ones are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._tell_held(is_end=True)
        if self._has_work:
            wait({self._writer.submit(self._write)}, timeout=WAIT_SECONDS)
        self._writer.submit(self._sync)
        for queue in self._queues:
            self._writer.submit(queue.close)
        self._writer.shutdown(wait=False)

    @property
    def _has_work(self) -> bool:
        # Try a disk again that answered just after its timeout, even if nothing is left to write.
        return self.is_broken or any(queue.has_work for queue in self._queues)

    def _note(self, event: str, details: Mapping[str, Any], kind: LineClass, source: LineSource) -> None:
        self._note_all(event, (details,), kind, source)

    def _note_all(self, event: str, some: Sequence[Mapping[str, Any]], kind: LineClass, source: LineSource) -> None:
        ts_ms, rate = self._world.wall_ms(), kind.rate
        if rate is not None:
            with self._guard:
                left_out = self._pace.take(source, rate, self._world.monotonic_ms(), ts_ms, some)
            some = [_counting(details, number) for details, number in zip(some, left_out, strict=False)]
        for details in some:
            self._queue_of(event).add(_line(ts_ms, event, details))

    def _tell_held(self, *, is_end: bool) -> None:
        """Write suppressed lines that have waited long enough, or all of them at the end."""
        with self._guard:
            lines = self._pace.due(self._world.monotonic_ms(), is_end=is_end)
        for one in lines:
            self._queue_of(one.event).add(_line(one.ts_ms, one.event, _counting(one.details, one.left_out)))

    def _queue_of(self, event: str) -> LineQueue:
        return self._important if class_of(event) is LineClass.IMPORTANT else self._ordinary

    def _loss(self, lines: int) -> bytes:
        return _line(self._world.wall_ms(), "AUDIT_LINES_LOST", {"lines": lines})

    async def _flush(self) -> None:
        async with self._turn:
            self._coming = None  # a later caller may have noted lines that this flush does not include
            if not self._is_closed:
                await asyncio.get_running_loop().run_in_executor(self._writer, self._write)

    def _write(self) -> None:
        """Runs in the writer's thread. Each file is tried, even if the other fails."""
        reason = ""
        for queue in self._queues:
            try:
                queue.write()
            except OSError as error:
                reason = error.strerror or type(error).__name__
        if reason:
            self._fail(reason)
        else:
            self._recover()

    def _sync(self) -> None:
        """Runs in the writer's thread. A disk that fails is told by the next write."""
        for queue in self._queues:
            with suppress(OSError):
                queue.sync()

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
    """The JSON text of one line, for any details."""
    line = {"ts": utc_text(ts_ms), "event": event, "details": dict(details)}
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
