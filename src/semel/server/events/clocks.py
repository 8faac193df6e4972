"""Timers of one connection: idle timeout, ping, slow reader, and expiry of the credential."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from semel.server.revocation import Revocation
from semel.surfaces.events.settings import EventsSettings

if TYPE_CHECKING:
    from semel.server.events.conversation import Conversation

LONGEST_SECONDS = 86_400.0
"""A timer that would run longer is set again."""


class Clocks:
    """Calls a conversation back when one of its timers expires."""

    def __init__(self, conversation: Conversation, settings: EventsSettings) -> None:
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        self._idle = settings.events_idle_ms / 1_000
        self._ping = settings.events_ping_ms / 1_000
        self._slow = settings.events_slow_ms / 1_000
        self._heard_at = self._loop.time()
        self._silence: asyncio.TimerHandle | None = self._loop.call_later(min(self._idle, self._ping), self._listen)
        self._connect: asyncio.TimerHandle | None = self._loop.call_later(self._idle, conversation.never_connected)
        self._stall: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._revocation: Revocation | None = None
        self.room_since: float | None = None
        """Since when a submission waits for room in the engine."""

    def heard(self) -> None:
        """Bytes have arrived: the client is alive."""
        self._heard_at = self._loop.time()

    def admitted(self) -> None:
        """The client has authenticated."""
        if self._connect is not None:
            self._connect.cancel()
            self._connect = None

    def filled(self, unsent: Callable[[], int]) -> None:
        """The client does not keep up with what is sent to it."""
        if self._stall is None:
            self._stall = self._loop.call_later(self._slow, self._check_stall, unsent, unsent())

    def _check_stall(self, unsent: Callable[[], int], before: int) -> None:
        """One that reads slowly but steadily is left alone."""
        now = unsent()
        if now >= before:
            self._conversation.stalled()
        else:
            self._stall = self._loop.call_later(self._slow, self._check_stall, unsent, now)

    def drained(self) -> None:
        """It reads again, which is a sign of life too."""
        self.heard()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def end_with(self, revocation: Revocation | None) -> None:
        """End the conversation when its token is revoked; a later one takes the place of the one before."""
        if self._revocation is not None:
            self._revocation.unwatch(self._conversation.expired)
        self._revocation = revocation
        if revocation is not None:
            revocation.watch(self._conversation.expired)

    def expire(self, at_ms: int | None, now: Callable[[], int]) -> None:
        """End the conversation at this time, by the wall clock."""
        if at_ms is None:
            return
        left = (at_ms - now()) / 1_000
        if left <= 0:
            self._conversation.expired()
        else:
            self._end = self._loop.call_later(min(left, LONGEST_SECONDS), self.expire, at_ms, now)

    def stop(self) -> None:
        """No more of it."""
        self.end_with(None)
        for timer in (self._silence, self._connect, self._stall, self._end):
            if timer is not None:
                timer.cancel()
        self._silence = self._connect = self._stall = self._end = None

    def _listen(self) -> None:
        """The idle timeout: the limit for clients that send heartbeats; others are pinged, and may miss one pong."""
        is_watched = self._conversation.is_watched
        if self._conversation.is_occupied:
            self.heard()
        quiet = self._loop.time() - self._heard_at
        longest = self._idle if is_watched else 2 * self._ping
        if quiet >= longest:
            self._conversation.silent()
            return
        if not is_watched and quiet >= self._ping / 2:
            self._conversation.ping()
        wait = longest - quiet if is_watched else min(self._ping, longest - quiet)
        self._silence = self._loop.call_later(max(wait, 0.01), self._listen)
