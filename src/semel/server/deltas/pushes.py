"""Push over HTTP: parse, submit, answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from semel.contracts.deltas.limits import Policy
from semel.contracts.deltas.reading import entry_size
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.contracts.deltas.wire.answers import plain_pushed_body, pushed_body
from semel.contracts.deltas.wire.bodies import PushBody, parse_push
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import Request
from semel.server.deltas.frames import push_of, read_frame
from semel.server.deltas.proto.sync_pb2 import SyncPush
from semel.server.http.answer import JSON, Answer
from semel.server.threads import apart

FORBIDDEN = "FORBIDDEN"
"""The error code of a push under the client id of another caller."""


class Pushes:
    """The HTTP handlers of pushes."""

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
        if body.cursor is not None:
            settlement = await self._desk.settle(asked, request.gateway, body)
            told = sum(map(entry_size, settlement.entries))
            return Answer(200, [JSON], await apart(size + told, plain_pushed_body, answer, settlement))
        return Answer(200, [JSON], await apart(size, pushed_body, answer))


def read_push_frame(raw: bytes, policy: Policy, authors: tuple[str, ...] | None) -> PushBody:
    """A push as a binary frame has it.

    At one go: between reading and judging it, a message would take up many times what it took to send it.
    """
    message = read_frame(raw)
    assert isinstance(message, SyncPush)
    return parse_for(partial(push_of, message, policy), authors)


def parse_for(parse: Callable[[str | None], PushBody], authors: tuple[str, ...] | None) -> PushBody:
    """A push by a caller that may use one of several ids, None for any; `parse` reads it for one of them."""
    *others, last = authors or (None,)
    for author in others:
        try:
            return parse(author)
        except RefusedDeltas as refused:
            # What names a delta was sent under this id; what does not may be under the next.
            if refused.refusal.code != FORBIDDEN or refused.refusal.flaws:
                raise
    return parse(last)
