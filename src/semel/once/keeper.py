"""Keeps the leases of running calls, in a thread of its own.

What guards a call must not depend on the code that it guards: a function may block its event loop, or use all threads
of an executor. So one daemon thread renews all leases of a store, over a connection that nothing else uses. All leases
that are due are renewed together.

| the guarded function | its lease |
|---|---|
| runs, blocks its event loop, or hangs | is renewed as long as its process lives; a warning names it at each lease |
| is stopped with its process, or runs C code that keeps the interpreter's lock | ends; its finish is fenced |
| holds the write lock of the receipts' own SQLite file | ends; a take-over waits for that lock, and looks again |
| is in a process that was forked meanwhile | is renewed by the parent alone |

A renewal that fails is tried again until the lease has ended. A lease that another call has taken over is lost, and not
renewed again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from queue import Empty
from typing import Any, Generic, TypeVar

from semel.once.deferred_import import warn
from semel.once.forks import take_part

T = TypeVar("T")

RENEWALS = 3
"""Renewals per lease."""
RETRY_SECONDS = 0.25
"""Pause after a renewal that failed; less for short leases."""


def genuine(module: str, name: str) -> Any:
    """What a module of the standard library has, or had before gevent replaced it."""
    patches = sys.modules.get("gevent.monkey")
    return getattr(import_module(module), name) if patches is None else patches.get_original(module, name)


class HeldLease(Generic[T]):
    """A lease that is held by this process."""

    __slots__ = ("_ends", "_warned", "began", "due", "is_lost", "item", "name", "seconds")

    def __init__(self, item: T, seconds: float, name: str) -> None:
        now = time.monotonic()
        self.item = item
        self.seconds = seconds
        self.name = name
        """The guarded function, for warnings."""
        self.began = now
        self.due = now + seconds / RENEWALS
        """When it is renewed next, by the monotonic clock."""
        self.is_lost = False
        self._ends = now + seconds
        self._warned = 0

    @property
    def left_seconds(self) -> float:
        """How long it certainly lasts from now on, without another renewal."""
        return 0.0 if self.is_lost else max(0.0, self._ends - time.monotonic())

    def extend(self, since: float) -> None:
        """Note a renewal that was sent at `since`, by the monotonic clock."""
        self._ends = since + self.seconds

    def lose(self) -> None:
        """Note that another call holds it."""
        self.is_lost = True

    def warn(self, now: float, log: Callable[..., None] = warn, fate: str = "is renewed") -> None:
        """Name the function once for each lease for which it has run."""
        leases = int((now - self.began) / self.seconds)
        if leases > self._warned:
            self._warned = leases
            log("%s has been running for %.0f s; its lease %s.", self.name, now - self.began, fate)


class Keeper(Generic[T]):
    """Renews the leases of one store. `renew` gets all that are due; it extends or loses each, or raises.

    Its thread and its locks are those of the system, also under gevent: a function that does not let greenlets switch
    must not stop it. Nothing waits while it holds the guard.
    """

    def __init__(self, renew: Callable[[Sequence[HeldLease[T]]], None]) -> None:
        self._renew = renew
        self._begin_anew()
        take_part(self)

    def _begin_anew(self) -> None:
        self._guard = genuine("_thread", "RLock")()
        self._wake: Any = None
        """The queue on which the thread waits."""
        self._held: set[HeldLease[T]] = set()
        self._wakes_at = float("inf")
        self._running: Any = None
        """A lock that the thread holds as long as it runs; None without a thread."""
        self._thread = 0

    def hold(self, item: T, seconds: float, name: str) -> HeldLease[T]:
        """Renew a lease that was just taken, until `drop`."""
        lease = HeldLease(item, seconds, name)
        with self._guard:
            self._held.add(lease)
            if self._running is None:
                self._start()
            elif lease.due < self._wakes_at:
                self._wakes_at = lease.due  # told once, however many are held until the thread has looked
                self._wake.put(None)
        return lease

    def _start(self) -> None:
        self._running = genuine("_thread", "allocate_lock")()
        self._running.acquire()
        self._wake = genuine("queue", "SimpleQueue")()
        self._thread = genuine("_thread", "start_new_thread")(self._run, (self._running, self._wake))

    def drop(self, lease: HeldLease[T]) -> None:
        """Renew it no more."""
        with self._guard:
            self._held.discard(lease)

    def close(self) -> None:
        """Drop all leases and end the thread."""
        with self._guard:
            self._held.clear()
            running, self._running = self._running, None
            if running is not None:
                self._wake.put(None)
        if running is not None and self._thread != genuine("_thread", "get_ident")():
            running.acquire()

    def _run(self, running: Any, wake: Any) -> None:
        try:
            while (due := self._wait(running, wake)) is not None:
                self._renew_all(due)
        finally:
            running.release()

    def _wait(self, running: Any, wake: Any) -> list[HeldLease[T]] | None:
        """Wait until leases are due; None when the keeper is closed."""
        while True:
            with self._guard:
                if self._running is not running:
                    return None
                now = time.monotonic()
                due = [lease for lease in self._held if lease.due <= now]
                if due:
                    return due
                self._wakes_at = min((lease.due for lease in self._held), default=float("inf"))
                pause = None if self._wakes_at == float("inf") else self._wakes_at - now
            with suppress(Empty):
                wake.get(timeout=pause)

    def _renew_all(self, due: list[HeldLease[T]]) -> None:
        now, fate = time.monotonic(), "is renewed"
        try:
            self._renew(due)
        except Exception as error:  # noqa: BLE001 - whatever a store raises, the other leases must not end
            fate = "could not be renewed"
            warn("%d leases could not be renewed: %s", len(due), error)
            for lease in due:
                lease.due = time.monotonic() + min(RETRY_SECONDS, lease.seconds / RENEWALS / 2)
        else:
            for lease in due:
                lease.due = now + lease.seconds / RENEWALS
        for lease in due:
            if lease.is_lost:
                self.drop(lease)
            else:
                lease.warn(now, fate=fate)

    def before_fork(self) -> None:
        """A renewal may go on: its statement is guarded by its database."""

    def after_fork_in_parent(self) -> None:
        """A renewal may go on."""

    def after_fork_in_child(self) -> None:
        """Renew nothing of the parent."""
        self._begin_anew()
