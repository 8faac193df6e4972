"""The dispatcher of an outbox: leases messages, sends them and records the answers, in a few threads.

| a crash | then |
|---|---|
| before the lease | the message is queued |
| after the lease, before the delivery | it is sent when the lease is over |
| after the delivery, before the record | it is sent again when the lease is over, with the same key |
| after the record | nothing |

The two in the middle look alike afterwards: both count as an attempt that may have arrived, from the time of the lease.

Several dispatchers may share an outbox, in one process or in many. Each message is leased before it is sent, and
nothing of it is sent later than `timeout` after that, which is sooner than its lease ends.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import NamedTuple

from semel.once.database import Database
from semel.once.errors import StoreUnavailable
from semel.once.message_table import MessageStatements, OutboxTime, Outlook, leased_of, outlook_of
from semel.once.messages import (
    Delivery,
    LeasedMessage,
    MessageState,
    OutboxMessage,
    RetryWaits,
    fate_before,
    judged,
    shown_url,
)
from semel.once.outbox_store import Room
from semel.once.table import Statement

log = logging.getLogger("semel.outbox")

POLL_SECONDS = 1.0
"""Time between two looks for messages that other processes have posted."""
BUSY_POLL_SECONDS = 0.1
SHORTEST_PAUSE_SECONDS, IDLE_PAUSE_SECONDS = 0.001, 0.01
"""Time between two looks while messages are due: after one that took some, and after one that took none."""
LONGEST_OUTAGE_POLL_SECONDS = 30.0
NOTE_TRIES = 3
SWEPT_AT_ONCE = 4
"""Expired messages that are deleted with each recorded attempt: more than one, so that they do not pile up."""

Transport = Callable[[OutboxMessage, float], Delivery]
"""Makes one attempt to deliver a message before a deadline of the monotonic clock."""


class Flushed(NamedTuple):
    """Counts of a flush or a run."""

    delivered: int
    """Messages that were delivered."""
    failed: int
    """Attempts that failed and will be retried."""
    poisoned: int
    """Messages that became poison."""
    left: int
    """Messages that can still be sent without an operator, counted as far as 10,000; messages queued behind them by
    `order_by` do not count."""
    unknown: int = 0
    """Messages that are not sent again, because an attempt may have arrived and its key may be forgotten."""


class DispatchOptions(NamedTuple):
    """The parts and limits of a dispatcher."""

    store: Database
    statements: MessageStatements
    transport: Transport
    now: Callable[[], OutboxTime]
    ids: Callable[[], str]
    chance: random.Random
    waits: RetryWaits
    concurrency: int
    timeout_seconds: float
    lease_ms: int
    keep_ms: int
    room: Callable[[], Room]
    monotonic: Callable[[], float] = time.monotonic


class Dispatcher:
    """One loop over an outbox, with its own threads."""

    def __init__(self, route: DispatchOptions) -> None:
        self._route = route
        self._owner = route.ids()
        self._stopped = threading.Event()
        self._finished = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._running: set[Future[None]] = set()
        self._counts = dict.fromkeys(MessageState, 0)
        self._outlook = Outlook(False, 0, 0.0)
        self._left = 0
        self._tried: set[int] = set()

    def stop(self) -> None:
        """Lease no more messages. Attempts that are under way finish."""
        self._stopped.set()
        self._wake.set()

    def wake(self) -> None:
        """Look for messages now: one may have been posted."""
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether the loop has ended and no attempt is under way."""
        return self._finished.is_set() and not self._futures()

    def join(self) -> None:
        """Wait for the attempts that are under way: at most twice the timeout of one attempt."""
        self._finished.wait(self._route.timeout_seconds)
        wait(self._futures(), self._route.timeout_seconds)

    def deliver(self, seconds: float | None = None, *, until_empty: bool) -> Flushed:
        """Send messages until `stop`, the deadline or, with `until_empty`, until no message can be sent.

        With `until_empty` messages that wait because no answer came are tried once without their wait.
        """
        deadline = None if seconds is None else self._route.monotonic() + seconds
        pool = ThreadPoolExecutor(self._route.concurrency, thread_name_prefix="semel-outbox")
        outage = POLL_SECONDS
        try:
            while not self._stopped.is_set():
                self._wake.clear()
                try:
                    pause = self._round(pool, is_hurried=until_empty)
                    outage = POLL_SECONDS
                except StoreUnavailable as error:
                    if until_empty:
                        raise
                    log.warning("The outbox cannot be read: %s", error)
                    pause, outage = outage, min(2 * outage, LONGEST_OUTAGE_POLL_SECONDS)
                left = None if deadline is None else deadline - self._route.monotonic()
                if (until_empty and self._is_over(left)) or (left is not None and left <= 0):
                    break
                self._wake.wait(pause if left is None else min(pause, left))
            if not until_empty or not self._outlook.leased:  # else the time is up, and attempts continue
                wait(self._futures(), self._route.timeout_seconds)  # a recorded attempt may not be counted yet
            self._count_left(is_needed=until_empty)
        finally:
            pool.shutdown(wait=False)
            self._finished.set()
        return self._flushed()

    def _round(self, pool: ThreadPoolExecutor, *, is_hurried: bool) -> float:
        """Lease and start what can be sent now. Returns the seconds until the next look."""
        route = self._route
        free = route.concurrency - len(self._futures())
        if free <= 0:
            return POLL_SECONDS
        taken = self._leased(free)
        for leased in taken:
            self._sent(pool, leased)
        # Messages behind others may hide some that can be sent.
        is_moving = bool(taken) or bool(route.store.run(route.statements.park(route.now())))
        if is_hurried:
            self._tried.update(leased.number for leased in taken)
            is_moving = is_moving or self._has_hurried()
        outlook = self._outlook = outlook_of(route.store.run(route.statements.outlook(route.now()))[0])
        longest = POLL_SECONDS
        if outlook.leased > len(self._futures()):
            longest = BUSY_POLL_SECONDS  # another process may finish it, and the next message of that order is due
        soonest = max(outlook.soonest_seconds, SHORTEST_PAUSE_SECONDS if is_moving else IDLE_PAUSE_SECONDS)
        return min(longest, soonest) if outlook.has_queued else longest

    def _has_hurried(self) -> bool:
        """Whether messages were made due that wait and were not tried since this dispatcher began."""
        run, statements, now = self._route.store.run, self._route.statements, self._route.now()
        waiting = [row[0] for row in run(statements.waiting(now)) if row[0] not in self._tried]
        return bool(waiting) and bool(run(statements.hurry(waiting, now)))

    def _count_left(self, *, is_needed: bool) -> None:
        try:
            self._left = int(self._route.store.run(self._route.statements.left())[0][0])
        except StoreUnavailable:
            if is_needed:
                raise

    def _is_over(self, left: float | None) -> bool:
        """Whether no message can be sent any more, or none before the deadline."""
        outlook = self._outlook
        return not outlook.has_queued or (left is not None and not outlook.leased and outlook.soonest_seconds > left)

    def _leased(self, limit: int) -> list[LeasedMessage]:
        route = self._route
        deadline = route.monotonic() + route.timeout_seconds
        rows = route.store.run(route.statements.lease(self._owner, route.lease_ms, limit, route.now()))
        return sorted((leased_of(row, self._owner, deadline) for row in rows), key=lambda leased: leased.number)

    def _sent(self, pool: ThreadPoolExecutor, leased: LeasedMessage) -> None:
        future = pool.submit(self._carry, leased)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)
        self._wake.set()

    def _carry(self, leased: LeasedMessage) -> None:
        """Send a message and record the result. A crash in between sends it again when its lease ends."""
        route = self._route
        fate, delivery = fate_before(leased, route.waits), None
        if fate is None:
            delivery = self._delivery_of(leased)
            fate = judged(delivery, leased, route.waits, route.chance)
        if fate.state in (MessageState.POISON, MessageState.UNKNOWN):
            why = fate.reason if delivery is None else delivery.error
            told = (leased.message.key, shown_url(leased.message.url), fate.state.value, why)
            log.warning("The message %r to %s is %s and was set aside: %s.", *told)
        room = route.room()
        counted = room.counted
        if self._noted(route.statements.note(leased, fate, delivery, route.now())):
            if fate.state is MessageState.DONE:
                room.free(counted)
            with self._lock:
                self._counts[fate.state] += 1

    def _delivery_of(self, leased: LeasedMessage) -> Delivery:
        route = self._route
        try:
            return route.transport(leased.message, leased.deadline)
        except Exception as error:  # noqa: BLE001 - one message that cannot be sent must not stop the others
            # Only the type of an unexpected error is logged: its text may contain a header.
            log.error("The message %r could not be sent: %s.", leased.message.key, type(error).__name__)
            return Delivery(error=type(error).__name__)

    def _noted(self, note: Statement) -> bool:
        """Whether the result is stored. If it is not, the message is sent again when its lease ends."""
        route = self._route
        for attempt in range(NOTE_TRIES):
            try:
                is_noted = any(row[0] for row in route.store.run(note))
            except StoreUnavailable as error:
                log.warning("The result of an attempt cannot be stored: %s", error)
                self._stopped.wait(0.1 * 2**attempt)
            else:
                with suppress(StoreUnavailable):
                    route.store.run(route.statements.sweep(route.keep_ms, SWEPT_AT_ONCE, route.now()))
                return is_noted
        return False

    def _futures(self) -> list[Future[None]]:
        with self._lock:
            return list(self._running)

    def _flushed(self) -> Flushed:
        with self._lock:
            counts = self._counts
            done, failed = counts[MessageState.DONE], counts[MessageState.QUEUED]
            return Flushed(done, failed, counts[MessageState.POISON], self._left, counts[MessageState.UNKNOWN])
