"""Plain appends in fronts: a front reads key and content and renders the answer, the writer decides.

The front uses the functions of the full path on the values that differ between the requests of one head shape, and the
writer checks the credential again for each. Whatever is unusual in a request or in its outcome takes the full path, in
the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from semel.kernel.json.messages import single_message
from semel.kernel.keys import pack, visible_key
from semel.server.fronts.grant import FrontConnection, Grant
from semel.server.http.answer_head import STATUS_LINES
from semel.server.http.protocol import HttpProtocol
from semel.surfaces.streams.rules.media_type import is_json
from semel.surfaces.streams.rules.offsets import OFFSET
from semel.surfaces.streams.rules.plain_append import STATUS
from semel.surfaces.streams.wire.requests import parse_content, plain_fingerprint

_LINES = b"stream-next-offset: " + OFFSET + b"\r\n%b"
_REPLAYED = b"idempotency-replayed: true\r\n"


class FrontAppendShape:
    """The shape of one client's plain appends to one stream, in a front."""

    is_pipelined = False

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.length = grant.length
        self._content_type, self._most, self.common = grant.facts
        self._is_json = is_json(self._content_type)

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Send an append to the writer; False leaves the request to the full path."""
        packed, mark, count = None, b"", 1
        if self.grant.is_keyed:
            parsed = visible_key(key)
            if parsed is None:
                return False
            packed, mark = pack(parsed), plain_fingerprint(body)
        message = single_message(body) if self._is_json else body
        if message is None:  # an array, or a text that has to be read in pieces
            content = parse_content(self._content_type, body, self._most)
            if content.flaw is not None:
                return False
            message, count = content.data, content.messages
        if not message:
            return False
        values = (packed, mark, message, count, key)
        return cast(FrontConnection, connection).submit(FrontAppend(self, key, body), self.grant.number, values)


class FrontAppend:
    """A plain append that runs on a connection of a front."""

    __slots__ = ("_shape", "body", "grant", "keep_alive", "key")

    is_pipelined = False

    def __init__(self, shape: FrontAppendShape, key: bytes, body: bytes) -> None:
        self._shape = shape
        self.grant = shape.grant
        self.key = key
        self.body = body
        self.keep_alive = True

    def lose(self) -> None:
        """The client has disconnected; the end of the connection tells the writer."""

    def settle(self, connection: FrontConnection, facts: Sequence[Any]) -> None:
        """Send the answer."""
        tail, epoch, is_replay = facts
        lines = _LINES % (epoch, tail, _REPLAYED if is_replay else b"")
        connection.write_plain(STATUS_LINES[STATUS], lines, self._shape.common)
