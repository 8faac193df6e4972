"""Parser of server-sent events (SSE).

What stands behind `data:` is content to its last space: the server puts none before it. An event counts once the empty
line behind it has come, so one that was cut off is as if it had never been sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    """One event, whole."""

    kind: str
    data: bytes


def parse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events in these lines; comments and unknown fields are passed over."""
    kind, data = "", list[bytes]()
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"event":
            kind = value.strip().decode("ascii", "replace")
        elif field == b"data":
            data.append(value)
        elif line in (b"\n", b"\r\n"):
            if data:
                yield Event(kind, b"\n".join(data))
            kind, data = "", []
