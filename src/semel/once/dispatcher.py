"""The dispatcher of an outbox: leases messages, sends them and records the answers, in a few threads.

| a crash | then |
|---|---|
| before the lease | the message is queued |
| after the lease, before the delivery | it is sent when the lease is over |
| after the delivery, before the record | it is sent again when the lease is over, with the same key |
| after the record | nothing |

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

from semel.once.errors import StoreUnavailable
from semel.once.message_table import MessageStatements, OutboxTime, Outlook, leased_of, outlook_of
from semel.once.messages import Delivery, LeasedMessage, LetterState, OutboxMessage, RetryWaits, judged, shown_url
from semel.once.stores import TableStore
from semel.once.table import Statement

log = logging.getLogger("semel.outbox")

POLL_SECONDS = 1.0
"""How long letters of other processes may lie unseen."""
BUSY_POLL_SECONDS = 0.1
LONGEST_OUTAGE_POLL_SECONDS = 30.0
NOTE_TRIES = 3
SWEPT_AT_ONCE = 4
"""Old letters that are removed with each note: more than notes add."""

Transport = Callable[[OutboxMessage, float], Delivery]
"""Tries to deliver a letter, before a deadline of the monotonic clock."""


class Flushed(NamedTuple):
    """What came of a flush or a run."""

    delivered: int
    """Letters that are done."""
    failed: int
    """Tries that failed."""
    poisoned: int
    """Letters that were set aside."""
    left: int
    """Letters that could still be sent without help; those behind them in their order are not counted."""


class DispatchOptions(NamedTuple):
    """How a courier works."""

    store: TableStore
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
    monotonic: Callable[[], float] = time.monotonic


class Dispatcher:
    """One loop over an outbox, with threads of its own."""

    def __init__(self, route: DispatchOptions) -> None:
        self._route = route
        self._owner = route.ids()
        self._stopped = threading.Event()
        self._finished = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._running: set[Future[None]] = set()
        self._counts = {LetterState.DONE: 0, LetterState.QUEUED: 0, LetterState.POISON: 0}
        self._outlook = Outlook(0, 0, 0.0)

    def stop(self) -> None:
        """Lease no more letters; those that are being sent end by themselves."""
        self._stopped.set()
        self._wake.set()

    def wake(self) -> None:
        """There may be a letter to send."""
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether it has ended, and nothing of it is being sent."""
        return self._finished.is_set() and not self._futures()

    def join(self) -> None:
        """Wait for those that are being sent: at most about the timeout of a letter."""
        self._finished.wait(self._route.timeout_seconds)
        wait(self._futures(), self._route.timeout_seconds)

    def deliver(self, seconds: float | None = None, *, until_empty: bool) -> Flushed:
        """Send letters until this is stopped, the time is over, or nothing is left that can be sent."""
        deadline = None if seconds is None else self._route.monotonic() + seconds
        pool = ThreadPoolExecutor(self._route.concurrency, thread_name_prefix="semel-outbox")
        outage = POLL_SECONDS
        try:
            while not self._stopped.is_set():
                self._wake.clear()
                try:
                    pause = self._round(pool)
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
            if not until_empty or not self._outlook.leased:  # else the time is over, and they go on behind it
                wait(self._futures(), self._route.timeout_seconds)  # what is noted may still have to be counted
        finally:
            pool.shutdown(wait=False)
            self._finished.set()
        return self._flushed()

    def _round(self, pool: ThreadPoolExecutor) -> float:
        """Lease what can be sent, and say how long to wait for the next look."""
        route = self._route
        free = route.concurrency - len(self._futures())
        if free <= 0:
            return POLL_SECONDS
        for leased in self._leased(free):
            self._sent(pool, leased)
        outlook = self._outlook = outlook_of(route.store.run(route.statements.outlook(route.now()))[0])
        longest = POLL_SECONDS
        if outlook.leased > len(self._futures()):
            longest = BUSY_POLL_SECONDS  # another process may end it, and the next one of its order is due
        return min(longest, max(outlook.soonest_seconds, 0.001)) if outlook.left else longest

    def _is_over(self, left: float | None) -> bool:
        """Whether nothing is left, or nothing that can be sent in the time that is left."""
        outlook = self._outlook
        return outlook.left == 0 or (left is not None and not outlook.leased and outlook.soonest_seconds > left)

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
        """Send a letter, and note what came of it."""
        route = self._route
        try:
            delivery = route.transport(leased.message, leased.deadline)
        except Exception as error:  # noqa: BLE001 - a letter that cannot be sent must not end the others
            # The words of an unexpected error are not told: they may hold a header.
            log.error("The letter %r could not be sent: %s.", leased.message.key, type(error).__name__)
            delivery = Delivery(error=type(error).__name__)
        fate = judged(delivery, leased, route.waits, route.chance)
        if fate.state is LetterState.POISON:
            told = (leased.message.key, shown_url(leased.message.url), delivery.error)
            log.warning("The letter %r to %s is set aside: %s.", *told)
        if self._noted(route.statements.note(leased, fate, delivery, route.now())):
            with self._lock:
                self._counts[fate.state] += 1

    def _noted(self, note: Statement) -> bool:
        """Whether the note is stored; without it the letter is sent again when its lease is over."""
        route = self._route
        for attempt in range(NOTE_TRIES):
            try:
                is_noted = bool(route.store.run(note))
            except StoreUnavailable as error:
                log.warning("What came of a letter cannot be noted: %s", error)
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
            return Flushed(
                counts[LetterState.DONE], counts[LetterState.QUEUED], counts[LetterState.POISON], self._outlook.left
            )
