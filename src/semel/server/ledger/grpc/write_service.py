"""Write and BatchWrite over gRPC: submit, and answer in the form that the caller asked for.

A replay looks like the first answer when this process has given that answer before; else it is ALREADY_COMMITTED with
the first answer inside. Both mean: committed, and not executed now.

Callers of the older dialect count their own sequences and know no keys. They read code 6 as a gap and field 8 as the
last committed sequence; and since they take ALREADY_COMMITTED for a success, a sequence that was used for something
else is told to them as a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from semel.contracts.ledger.commands import Code, Committed, Declined, PreparedWrite, Replayed, Written
from semel.contracts.ledger.reading import client_state, tx_proof
from semel.contracts.ledger.refusals import SEQUENCE_VIOLATION
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import Content, parser
from semel.server.ledger.desk import Desk
from semel.server.ledger.exchange import REPLAYED
from semel.server.ledger.grpc.inbound import (
    WriteOrder,
    asked_of,
    batch_order,
    check_groups,
    check_operations,
    write_order,
)
from semel.server.ledger.grpc.large_writes import large_batch, large_write
from semel.server.ledger.grpc.outbound import declined_pb
from semel.server.ledger.grpc.statuses import precondition
from semel.server.ledger.grpc.transaction_parts import parts_of, success_parts
from semel.server.ledger.proto import ledger_pb2 as pb
from semel.server.threads import apart, is_small

Read = Callable[[Content], WriteOrder]
Asked = tuple[WriteOrder, PreparedWrite]
Response = type[pb.WriteResponse] | type[pb.BatchWriteResponse]

_COMMITTED = "Committed before; nothing was executed now. The first answer is in `original`."
_LEGACY_GAP = pb.WRITE_ERROR_CODE_IDEMPOTENCY_KEY_REUSED
"""The number that a gap had before there were keys."""


class WriteService:
    """ledger.v1.WriteService."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def methods(self) -> Iterator[GrpcMethod]:
        """Both keep the order in which they came on a connection: a client may send on without waiting."""
        path = b"/ledger.v1.WriteService/%s"
        most = self._desk.limits.max_operations
        one = parser(pb.WriteRequest, partial(write_order, most=most), partial(check_operations, most))
        many = parser(pb.BatchWriteRequest, partial(batch_order, most=most), partial(check_groups, most))
        one_large, many_large = partial(large_write, most=most), partial(large_batch, most=most)
        yield GrpcMethod(path % b"Write", self._prepared(one, one_large), self._write, is_ordered=True)
        yield GrpcMethod(path % b"BatchWrite", self._prepared(many, many_large), self._batch, is_ordered=True)

    def _prepared(self, small: Read, large: Read) -> Callable[[Content], list[Asked]]:
        """Decodes a message; the result is put into a list, so that the caller can take it out and free it."""
        return lambda content: [self._prepare((small if is_small(len(content)) else large)(content))]

    def _prepare(self, order: WriteOrder) -> Asked:
        draft = order.draft
        prepared = self._desk.prepare(order.place, draft.client, draft.sequence, draft.key, draft.operations)
        return order._replace(draft=draft._replace(operations=())), prepared

    async def _write(self, call: GrpcCall, asked: list[Asked]) -> bytes | None:
        return await self._commit(call, asked, pb.WriteResponse)

    async def _batch(self, call: GrpcCall, asked: list[Asked]) -> bytes | None:
        return await self._commit(call, asked, pb.BatchWriteResponse)

    async def _commit(self, call: GrpcCall, asked: list[Asked], response: Response) -> bytes | None:
        order, prepared = asked.pop()
        wants = order.draft.wants_proof
        committing = self._desk.write(asked_of(call), prepared, with_proof=wants)
        del prepared  # what was encoded is not needed for the answer
        answer = await committing
        if isinstance(answer, Declined):
            return self._decline(call, order, answer, response)
        if isinstance(answer, Written):
            return await apart(call.held, _success, answer.committed, wants, response)
        call.head.append(REPLAYED)
        has_proof = wants or answer.with_proof
        if self._desk.is_hot(answer.committed):
            return await apart(call.held, _success, answer.committed, has_proof, response)
        last = await self._last(order) if order.is_legacy else None
        return await apart(call.held, _original, answer, has_proof, last, response)

    def _decline(self, call: GrpcCall, order: WriteOrder, declined: Declined, response: Response) -> bytes | None:
        if order.is_legacy and declined.code is Code.IDEMPOTENCY_KEY_REUSED:
            call.finish(precondition(declined.message, SEQUENCE_VIOLATION, declined.details))
            return None
        if declined.code is Code.ALREADY_COMMITTED:
            call.head.append(REPLAYED)
        error = declined_pb(declined)
        if order.is_legacy:
            _make_legacy(error, declined.last)
        return response(error=error).SerializeToString()

    async def _last(self, order: WriteOrder) -> int:
        """The last sequence of the client; it may always read its own."""
        client = order.draft.client.encode()
        state = await self._desk.context.engine.read(lambda reading: client_state(reading, order.place, client))
        return state.last


def _success(committed: Committed, has_proof: bool, response: Response) -> bytes:
    kind = pb.WriteSuccess if response is pb.WriteResponse else pb.BatchWriteSuccess
    success = success_parts(kind, committed, tx_proof(committed) if has_proof else None)
    return b"".join(parts_of(response(), success=[success]))


def _original(replayed: Replayed, has_proof: bool, legacy_last: int | None, response: Response) -> bytes:
    committed = replayed.committed
    error = pb.WriteError(
        code=pb.WRITE_ERROR_CODE_ALREADY_COMMITTED,
        message=_COMMITTED,
        committed_tx_id=pb.TxId(id=committed.transaction.id),
        committed_block_height=committed.header.height,
        assigned_sequence=committed.transaction.sequence,
    )
    if legacy_last is not None:
        _make_legacy(error, legacy_last)
    original = success_parts(pb.WriteSuccess, committed, tx_proof(committed) if has_proof else None)
    return b"".join(parts_of(response(), error=[parts_of(error, original=[original])]))


def _make_legacy(error: pb.WriteError, last: int | None) -> None:
    """The same error with the numbers of the older dialect."""
    if error.code == pb.WRITE_ERROR_CODE_SEQUENCE_GAP:
        error.code = _LEGACY_GAP
    error.ClearField("assigned_sequence")
    if last is not None:
        error.assigned_sequence = last
