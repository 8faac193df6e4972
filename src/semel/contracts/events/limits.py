"""Limits of events; each is advertised or documented, and named by the refusal."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ID_BYTES = 128
MAX_NAME_BYTES = 128
MAX_NAMES = 64
MAX_COMMITTED_ID = 2**53 - 1
EVENT_LEVELS = 64
FRAME_LEVELS = EVENT_LEVELS + 4
"""An event is nested in a message, its payload, the list of items and its item."""
PAGE_LEAST, PAGE_MOST, PAGE_DEFAULT = 1, 1_000, 500
HEAD_BYTES = 32 * 1024
REPLY_BYTES = 1_024
MAX_INSTANCE_BYTES = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a deployment may set."""

    batch_items: int = 100
    message_bytes: int = 1024 * 1024
    in_flight_items: int = 200

    @property
    def head_bytes(self) -> int:
        """Bytes of every page that are reserved for the envelope and names, besides its events."""
        return min(HEAD_BYTES, self.message_bytes // 4)

    @property
    def reply_bytes(self) -> int:
        """The longest name of a request, in print, that its answer has."""
        return min(REPLY_BYTES, self.head_bytes // 4)
