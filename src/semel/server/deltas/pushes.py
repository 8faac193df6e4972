"""A push over HTTP: parse, hand over, answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from semel.contracts.deltas.refusals import RefusedDeltas
from semel.contracts.deltas.wire.answers import pushed_body
from semel.contracts.deltas.wire.bodies import PushBody, parse_push
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import JSON, Answer, Request
from semel.server.threads import apart

FORBIDDEN = "FORBIDDEN"
"""The code of pushing for somebody else."""


class Pushes:
    """The writing half of the host."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def push(self, request: Request) -> Answer:
        """POST of deltas."""
        size, asked = len(request.body), request.asked
        try:
            parse = partial(parse_push, request.body, self._desk.policy)
            body = await apart(size, parse_for, parse, asked.authors)
        except RefusedDeltas as refused:
            if refused.refusal.code == FORBIDDEN:
                self._desk.journal.no_access(asked.where)
            raise
        answer = await self._desk.push(asked, request.gateway, body, size)
        return Answer(200, [JSON], await apart(size, pushed_body, answer))


def parse_for(parse: Callable[[str | None], PushBody], authors: tuple[str, ...] | None) -> PushBody:
    """A push by somebody who may use one of several ids, None for any; `parse` reads it for one of them."""
    *others, last = authors or (None,)
    for author in others:
        try:
            return parse(author)
        except RefusedDeltas as refused:
            # What names a delta was sent under this id; what does not may be under the next.
            if refused.refusal.code != FORBIDDEN or refused.refusal.flaws:
                raise
    return parse(last)
