"""Pull over HTTP, and the actions that are not supported."""

from __future__ import annotations

from functools import partial

from semel.contracts.deltas.wire.answers import page_body, plain_page_body
from semel.contracts.deltas.wire.query import parse_pull
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import Request, answer_json, send_pieces
from semel.server.http.answer import JSON, Answer, StreamedAnswer
from semel.server.threads import apart


class Pulls:
    """The HTTP handlers of pulls."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def pull(self, request: Request) -> Answer | StreamedAnswer:
        """GET of what is new."""
        wanted, asked = parse_pull(request.query), request.asked
        if request.is_head:
            return Answer(200, [JSON], b"")
        room = self._desk.answers.share(asked.counted_as)
        try:
            if wanted.is_plain:
                page = await self._desk.plain_pull(asked, request.gateway, wanted, room)
            else:
                page = await self._desk.pull(asked, request.gateway, wanted.client, wanted.since, wanted.limit, room)
            body = await apart(room.size, plain_page_body if wanted.is_plain else page_body, page)
        except BaseException:
            room.close()
            raise
        return StreamedAnswer([JSON, (b"content-length", b"%d" % len(body))], partial(send_pieces, body), room.close)

    async def actions(self, request: Request) -> Answer:
        """GET of the connectors that could act: there are none."""
        return answer_json({"connectors": {}})
