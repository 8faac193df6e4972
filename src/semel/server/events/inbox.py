"""The inbox of a connection: messages that wait for their turn, limited in number and bytes."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from semel.contracts.events.wire.messages import Request, WireError

MAX_MESSAGES = 64


class Message(NamedTuple):
    """A message that arrived in one or more frames."""

    raw: bytes
    is_text: bool
    most: int = 0
    """For one that was too large to be taken: how large it might have been."""


class Inbox:
    """Messages in the order of arrival; the first may have been parsed already."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self.read: Request | WireError | None = None
        """The parsed request of the first message, once it was parsed."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def has_room(self) -> bool:
        """Whether more may be listened to."""
        return len(self._messages) < MAX_MESSAGES and self._bytes < self._most_bytes

    @property
    def first(self) -> Message:
        """The next message."""
        return self._messages[0]

    def add(self, message: Message) -> None:
        """One more has arrived."""
        self._messages.append(message)
        self._bytes += len(message.raw)

    def drop_first(self) -> None:
        """Its turn is over."""
        self.read = None
        if self._messages:
            self._bytes -= len(self._messages.popleft().raw)

    def clear(self) -> None:
        """Drop all messages: the connection is gone, and no answer can be sent."""
        self._messages.clear()
        self._bytes = 0
        self.read = None
