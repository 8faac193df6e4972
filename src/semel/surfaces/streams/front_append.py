"""Plain appends in fronts: a front reads key and content and renders the answer, the writer decides.

The front uses the functions of the full path on the values that differ between the requests of one head shape, and the
writer checks the credential again for each. Whatever is unusual in a request or in its outcome takes the full path, in
the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from semel.kernel.keys import InvalidKeyError, pack, parse_idempotency_key
from semel.server.fronts.grant import FrontConnection, Grant
from semel.server.http.answer_head import STATUS_LINES
from semel.server.http.protocol import HttpProtocol
from semel.surfaces.streams.rules.offsets import format_offset
from semel.surfaces.streams.rules.plain_append import STATUS
from semel.surfaces.streams.wire.requests import fingerprint, parse_content

_REPLAYED = b"idempotency-replayed: true\r\n"


class FrontAppendShape:
    """The shape of one client's plain appends to one stream, in a front."""

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.length = grant.length
        self._content_type, self._most, self.common = grant.facts

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Send an append to the writer; False leaves the request to the full path."""
        packed, mark = None, b""
        if self.grant.is_keyed:
            try:
                parsed = parse_idempotency_key([key])
            except InvalidKeyError:
                return False
            assert parsed is not None
            packed, mark = pack(parsed), fingerprint(body, False, None)
        content = parse_content(self._content_type, body, self._most)
        if content.flaw is not None or not content.data:
            return False
        values = (packed, mark, content.data, content.messages, key)
        return cast(FrontConnection, connection).submit(FrontAppend(self, key, body), self.grant.number, values)


class FrontAppend:
    """A plain append that runs on a connection of a front."""

    __slots__ = ("_shape", "body", "grant", "keep_alive", "key")

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
        connection.write_plain(
            STATUS_LINES[STATUS],
            b"stream-next-offset: %b\r\n%b" % (format_offset(tail, epoch), _REPLAYED if is_replay else b""),
            self._shape.common,
        )
