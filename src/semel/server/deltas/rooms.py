"""Subscribers of each gateway over WebSocket on this node, and the task that wakes them.

A commit, here or on another node, is signalled by the topic of its gateway; one task for each gateway waits for it and
wakes the subscribers. A signal carries no data: a subscriber that is woken reads the log from its own cursor.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from semel.contracts.deltas.rules.push import topic_of
from semel.engine.signals import Signals

POLL_SECONDS = 30.0
"""Seconds between two reads of the log without a signal, since a signal may be lost."""


class Listener(Protocol):
    """A subscriber: one connection."""

    def stir(self) -> None:
        """Something may have been committed."""


class Rooms:
    """The subscribers of this node by gateway; used on the event loop only."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._members: dict[str, set[Listener]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def join(self, gateway: str, listener: Listener) -> None:
        """Subscribe: wake the listener from now on; earlier commits it reads itself."""
        self._members.setdefault(gateway, set()).add(listener)
        if gateway not in self._tasks:
            self._tasks[gateway] = asyncio.get_running_loop().create_task(self._listen(gateway))

    def leave(self, gateway: str, listener: Listener) -> None:
        """Wake it no more."""
        members = self._members.get(gateway)
        if members is None:
            return
        members.discard(listener)
        if not members:
            del self._members[gateway]
            self._tasks.pop(gateway).cancel()

    async def _listen(self, gateway: str) -> None:
        watch = self._signals.watch(topic_of(gateway))
        try:
            while True:
                await watch.wait(POLL_SECONDS)
                watch.arm()
                for listener in list(self._members.get(gateway, ())):
                    listener.stir()
        finally:
            watch.close()
