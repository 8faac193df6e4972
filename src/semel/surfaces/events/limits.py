"""Limits of events. Each limit is advertised or documented, and a refusal names the limit that was exceeded."""

from __future__ import annotations

from dataclasses import dataclass

MAX_ID_BYTES = 128
MAX_NAME_BYTES = 128
MAX_NAMES = 64
MAX_COMMITTED_ID = 2**53 - 1
EVENT_LEVELS = 64
FRAME_LEVELS = EVENT_LEVELS + 4
"""Four levels surround an event: the message, its payload, the list of items and the item."""
PAGE_LEAST, PAGE_MOST, PAGE_DEFAULT = 1, 1_000, 500
MAX_TYPES = 64
MAX_TYPE_BYTES = 128
"""Limits of a filter by type; the type of an event itself may be longer."""
HEAD_BYTES = 32 * 1024
REPLY_BYTES = 1_024
MAX_INSTANCE_BYTES = 128
LIST_DEFAULT, LIST_MOST = 100, 1_000


@dataclass(frozen=True, slots=True)
class EventLimits:
    """The limits that a deployment may set."""

    batch_items: int = 100
    message_bytes: int = 1024 * 1024
    in_flight_items: int = 200

    @property
    def head_bytes(self) -> int:
        """Bytes of each page that are reserved for the envelope and the names, in addition to the events."""
        return min(HEAD_BYTES, self.message_bytes // 4)

    @property
    def reply_bytes(self) -> int:
        """The longest message name, in bytes as encoded in JSON, that an answer repeats."""
        return min(REPLY_BYTES, self.head_bytes // 4)
