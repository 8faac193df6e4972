"""The pull frame of the plain dialect over WebSocket: a text message."""

from __future__ import annotations

from semel.contracts.deltas.limits import DEFAULT_PAGE, MAX_PAGE
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.contracts.deltas.wire.bodies import client_of
from semel.contracts.deltas.wire.query import PullQuery
from semel.kernel.canonical import JsonError, parse
from semel.kernel.hlc import read_hlc
from semel.server.deltas.frames import FrameError


class PlainFrame(bytes):
    """A text message as received."""

    __slots__ = ()

    def read(self) -> PullQuery:
        """Parse the pull: `clientId` and `since`, and optionally `limit` and `ownAfter`."""
        try:
            facts = parse(bytes(self))
        except JsonError as error:
            raise FrameError(f"A text frame is a JSON object: {error}") from None
        if not isinstance(facts, dict):
            raise FrameError("A text frame is a JSON object.")
        since, own_after = _position(facts.get("since")), _position(facts.get("ownAfter"))
        limit = facts.get("limit", DEFAULT_PAGE)
        if since is None or (own_after is None and facts.get("ownAfter") is not None):
            raise FrameError("since, and ownAfter if it is there, are strings of decimal digits.")
        if type(limit) not in (int, float) or not isinstance(limit, int | float) or not limit >= 1:
            raise FrameError("limit is a number, and at least 1.")
        try:
            client = client_of(facts.get("clientId"))
        except RefusedDeltas as refused:
            raise FrameError(refused.refusal.message) from None
        return PullQuery(client, since, int(min(limit, MAX_PAGE)), is_plain=True, own_after=own_after)


def _position(value: object) -> int | None:
    return read_hlc(value) if isinstance(value, str) else None
