"""Limits of one WebSocket connection: its timers (silence, ping, stall, expiry) and its bounded inbox."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from weakref import proxy

from semel.server.auth.revocation import Revocation

if TYPE_CHECKING:
    from semel.server.websocket.conversation import Conversation

LONGEST_SECONDS = 86_400.0
"""The longest timer in seconds; a longer one is set in steps."""
MAX_MESSAGES = 64
"""Limit on the waiting messages of one connection; at the limit the connection is not read."""


class ConversationLimits(NamedTuple):
    """The limits of one connection, from the settings of its surface."""

    inbox_bytes: int
    """Limit on the bytes of waiting messages; above it the connection is not read."""
    ping_seconds: float
    """Time between two pings; a connection is closed when nothing arrives for twice that time."""
    stall_seconds: float
    """Time within which a client must read at least one byte of what it is sent."""
    idle_seconds: float = inf
    """The limit on silence for a client that sends heartbeats and is not pinged."""


class ConnectionTimers:
    """Calls a conversation back when one of its timers expires."""

    def __init__(self, conversation: Conversation, limits: ConversationLimits) -> None:
        self._conversation: Conversation = proxy(conversation)
        """It owns these timers, and stops them when it ends."""
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._heard_at = self._loop.time()
        first = min(limits.idle_seconds, limits.ping_seconds)
        self._silence: asyncio.TimerHandle | None = self._loop.call_later(first, self._listen)
        self._stall: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._revocation: Revocation | None = None

    def heard(self) -> None:
        """Bytes have arrived: the client is alive."""
        self._heard_at = self._loop.time()

    def filled(self, unsent: Callable[[], int]) -> None:
        """The client does not keep up with its output; `unsent` returns the number of unsent bytes."""
        if self._stall is None:
            self._stall = self._loop.call_later(self._limits.stall_seconds, self._check_stall, unsent, unsent())

    def drained(self) -> None:
        """The client has read its output."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def end_with(self, revocation: Revocation | None) -> None:
        """End the conversation when its token is revoked; a later call replaces an earlier one."""
        if self._revocation is not None:
            self._revocation.unwatch(self._conversation.revoked)
        self._revocation = revocation
        if revocation is not None:
            revocation.watch(self._conversation.revoked)

    def expire(self, at_ms: int | None, now: Callable[[], int]) -> None:
        """End the conversation at this time, by the wall clock."""
        if at_ms is None:
            return
        left = (at_ms - now()) / 1_000
        if left <= 0:
            self._conversation.expired()
        else:
            self._expiry = self._loop.call_later(min(left, LONGEST_SECONDS), self.expire, at_ms, now)

    def stop(self) -> None:
        """Cancel all timers."""
        self.end_with(None)
        for timer in (self._silence, self._stall, self._expiry):
            if timer is not None:
                timer.cancel()
        self._silence = self._stall = self._expiry = None

    def _check_stall(self, unsent: Callable[[], int], before: int) -> None:
        """Close a client that has read nothing; one that reads slowly but steadily stays connected."""
        now = unsent()
        if now >= before:
            self._conversation.stalled()
        else:
            self._stall = self._loop.call_later(self._limits.stall_seconds, self._check_stall, unsent, now)

    def _listen(self) -> None:
        """The idle timeout: a limit for clients that send heartbeats; others are pinged, and may miss one pong."""
        conversation, ping = self._conversation, self._limits.ping_seconds
        if conversation.is_late:
            conversation.late()
            return
        if conversation.is_occupied:
            self.heard()
        is_watched = conversation.is_watched
        quiet = self._loop.time() - self._heard_at
        longest = self._limits.idle_seconds if is_watched else 2 * ping
        if quiet >= longest:
            conversation.silent()
            return
        if not is_watched and quiet >= ping / 2:
            conversation.ping()
        wait = longest - quiet if is_watched else min(ping, longest - quiet)
        self._silence = self._loop.call_later(max(wait, 0.01), self._listen)


class MessageKind(Enum):
    """The kind of an entry in the inbox."""

    TEXT = 1
    BINARY = 2
    TOO_LARGE = 3
    """A message over the limit; nothing is read after it."""
    PONG = 4
    """The client has received what was sent before a ping; messages that arrived earlier were sent without
    knowing it.
    """


class InboxMessage(NamedTuple):
    """A message of the client that is waiting to be handled."""

    kind: MessageKind
    raw: bytes = b""
    limit: int = 0
    """The limit in bytes, if the message was too large."""


class Inbox:
    """Messages in the order of arrival."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._messages: deque[InboxMessage] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def has_room(self) -> bool:
        """Whether the connection may be read."""
        return len(self._messages) < MAX_MESSAGES and self._bytes < self._most_bytes

    @property
    def first(self) -> InboxMessage:
        """The next message."""
        return self._messages[0]

    def add(self, message: InboxMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        self._bytes += len(message.raw)

    def pop(self) -> InboxMessage:
        """Remove and return the next message."""
        message = self._messages.popleft()
        self._bytes -= len(message.raw)
        return message

    def clear(self) -> bool:
        """Drop all messages, since none of them will be answered; returns whether a pong was among them."""
        has_pong = any(message.kind is MessageKind.PONG for message in self._messages)
        self._messages.clear()
        self._bytes = 0
        return has_pong
