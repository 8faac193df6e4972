"""Writes and batches over HTTP: parse, submit, answer."""

from __future__ import annotations

from collections.abc import Callable

from semel.contracts.fields import Fields
from semel.contracts.ledger.commands import Code, Declined, PreparedWrite, Replayed, Written
from semel.contracts.ledger.reading import tx_proof
from semel.contracts.ledger.wire.answers import declined_json, success_json
from semel.contracts.ledger.wire.query import parse_nothing
from semel.contracts.ledger.wire.requests import Draft, parse_batch, parse_write
from semel.server.http.answer import Answer
from semel.server.ledger.desk import Desk
from semel.server.ledger.exchange import REPLAYED, Request, answer_json
from semel.server.threads import apart

Parse = Callable[[bytes, Fields, int], Draft]

STATUSES = {
    Code.KEY_EXISTS: 412,
    Code.KEY_NOT_FOUND: 412,
    Code.VERSION_MISMATCH: 412,
    Code.VALUE_MISMATCH: 412,
    Code.ALREADY_COMMITTED: 200,
    Code.IDEMPOTENCY_KEY_REUSED: 409,
    Code.SEQUENCE_GAP: 409,
}


class Writes:
    """The HTTP handlers of writes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def write(self, request: Request) -> Answer:
        """POST of one transaction."""
        return await self._write(request, parse_write)

    async def batch(self, request: Request) -> Answer:
        """POST of one transaction in groups."""
        return await self._write(request, parse_batch)

    async def _write(self, request: Request, parse: Parse) -> Answer:
        parse_nothing(request.query)
        size = request.body.size
        wants_proof, prepared = await apart(size, self._prepare, request, parse)
        committing = self._desk.write(request.asked, prepared, with_proof=wants_proof)
        del prepared  # what was encoded is not needed for the answer
        answer = await committing
        if isinstance(answer, Replayed):
            self._desk.is_hot(answer.committed)  # the full answer is sent: remember it
        return await apart(size, _answer, answer, wants_proof)

    def _prepare(self, request: Request, parse: Parse) -> tuple[bool, PreparedWrite]:
        draft = parse(request.body.take(), request.fields, self._desk.limits.max_operations)
        prepared = self._desk.prepare(request.place, draft.client, draft.sequence, draft.key, draft.operations)
        return draft.wants_proof, prepared


def _answer(answer: Written | Replayed | Declined, wants_proof: bool) -> Answer:
    if isinstance(answer, Declined):
        is_done = answer.code is Code.ALREADY_COMMITTED
        headers = (REPLAYED,) if is_done else ()
        return answer_json({"error": declined_json(answer)}, STATUSES[answer.code], *headers)
    committed = answer.committed
    is_replay = isinstance(answer, Replayed)
    has_proof = wants_proof or (isinstance(answer, Replayed) and answer.with_proof)
    success = success_json(committed, tx_proof(committed) if has_proof else None)
    headers = (REPLAYED,) if is_replay else ()
    return answer_json({"success": success}, 200, *headers)
