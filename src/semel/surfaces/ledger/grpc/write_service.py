"""Write and BatchWrite over gRPC.

A replay has the form of the first answer when this process has given that answer before; otherwise it is
ALREADY_COMMITTED with the first answer inside. Both mean: committed, and not executed now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import Content, parser
from semel.server.thread_pool import apart, is_small
from semel.surfaces.ledger.commands import PreparedWrite, WriteCommitted, WriteDeclined, WriteErrorCode
from semel.surfaces.ledger.exchange import REPLAYED
from semel.surfaces.ledger.grpc.answers import declined_pb
from semel.surfaces.ledger.grpc.requests import (
    GrpcWrite,
    caller_of_call,
    check_groups,
    check_operations,
    parse_batch,
    parse_large_batch,
    parse_large_write,
    parse_write,
)
from semel.surfaces.ledger.grpc.write_answers import Response, original_of, success_of
from semel.surfaces.ledger.grpc.write_stream import TransactionStreams
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.service import LedgerService

Read = Callable[[Content], GrpcWrite]
_PreparedCall = tuple[GrpcWrite, PreparedWrite]


class WriteService:
    """ledger.v1.WriteService."""

    def __init__(self, service: LedgerService) -> None:
        self._service = service

    def methods(self) -> Iterator[GrpcMethod]:
        """The methods of the service. All keep the order of a connection: a client may send without waiting."""
        path = b"/ledger.v1.WriteService/%s"
        most = self._service.limits.max_operations
        one = parser(pb.WriteRequest, partial(parse_write, most=most), partial(check_operations, most))
        many = parser(pb.BatchWriteRequest, partial(parse_batch, most=most), partial(check_groups, most))
        one_large, many_large = partial(parse_large_write, most=most), partial(parse_large_batch, most=most)
        yield GrpcMethod(path % b"Write", self._prepared(one, one_large), self._write, is_ordered=True)
        yield GrpcMethod(path % b"BatchWrite", self._prepared(many, many_large), self._batch, is_ordered=True)
        yield TransactionStreams(self._service, self._prepared(one, one_large)).method

    def _prepared(self, small: Read, large: Read) -> Callable[[Content], list[_PreparedCall]]:
        """A decoder of messages. Its result is in a list, so that the caller can take it out and free it."""
        return lambda content: [self._prepare((small if is_small(len(content)) else large)(content))]

    def _prepare(self, order: GrpcWrite) -> _PreparedCall:
        draft = order.draft
        prepared = self._service.prepare(order.place, draft.client, draft.sequence, draft.key, draft.operations)
        return order._replace(draft=draft._replace(operations=())), prepared

    async def _write(self, call: GrpcCall, asked: list[_PreparedCall]) -> bytes:
        return await self._commit(call, asked, pb.WriteResponse)

    async def _batch(self, call: GrpcCall, asked: list[_PreparedCall]) -> bytes:
        return await self._commit(call, asked, pb.BatchWriteResponse)

    async def _commit(self, call: GrpcCall, asked: list[_PreparedCall], response: Response) -> bytes:
        order, prepared = asked.pop()
        wants = order.draft.wants_proof
        committing = self._service.write(caller_of_call(call), prepared, with_proof=wants)
        del prepared  # free the encoded operations: the answer does not need them
        answer = await committing
        if isinstance(answer, WriteDeclined):
            if answer.code is WriteErrorCode.ALREADY_COMMITTED:
                call.head.append(REPLAYED)
            return response(error=declined_pb(answer)).SerializeToString()
        if isinstance(answer, WriteCommitted):
            return await apart(call.held, success_of, answer.committed, wants, response)
        call.head.append(REPLAYED)
        has_proof = wants or answer.with_proof
        if self._service.was_answered(answer.committed):
            return await apart(call.held, success_of, answer.committed, has_proof, response)
        return await apart(call.held, original_of, answer, has_proof, response)
