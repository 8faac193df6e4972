"""Frames of a WebSocket client in the Insieme 2.x dialect, which cost as little as they can.

The load generators share two cores with the server that they measure. So frames are put together from prepared bytes,
the mask is zero (a legal one, which leaves a payload as it is, and which a server takes off all the same), and nothing
that comes in is parsed as JSON: it is looked through for the few bytes that tell what it is.
"""

from __future__ import annotations

import json
import struct

PATH = "/v1/events"
MASK = b"\0\0\0\0"
PAD = "x" * 100


def frame(payload: bytes) -> bytes:
    """A whole masked frame of text."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x81, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
    return head + MASK + payload


def message(kind: str, payload: dict[str, object]) -> bytes:
    """An envelope as the 2.x client sends it."""
    envelope = {
        "type": kind,
        "protocolVersion": "1.0",
        "timestamp": 1_760_000_000_000,
        "msgId": "m",
        "payload": payload,
    }
    return json.dumps(envelope, separators=(",", ":")).encode()


def connect_frame(client: str, project: str) -> bytes:
    """The first message; the token names the client, which is all that Insieme's server is set up to ask."""
    return frame(message("connect", {"token": client, "clientId": client, "projectId": project}))


class Drafts:
    """Makes `submit_events` frames of one size, each event with an id of its own."""

    def __init__(self, client: str, project: str) -> None:
        item = {
            "id": "@",
            "partition": "board",
            "projectId": project,
            "type": "card.moved",
            "schemaVersion": 1,
            "payload": {"card": 3, "to": "done", "pad": PAD},
            "meta": {"clientId": client, "clientTs": 1_760_000_000_990},
        }
        whole = message("submit_events", {"events": [item]})
        self._opening, rest = whole.split(b"[", 1)
        one, self._closing = rest.rsplit(b"]", 1)
        self._before, self._after = one.split(b"@")

    def frame(self, ids: list[bytes]) -> bytes:
        """One batch."""
        between = b"%s,%s" % (self._after, self._before)
        items = self._before + between.join(ids) + self._after
        return frame(b"%s[%s]%s" % (self._opening, items, self._closing))
