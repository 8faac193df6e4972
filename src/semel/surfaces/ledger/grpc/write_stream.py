"""Many transactions over gRPC, in a stream without end: StreamWrites.

Each transaction has its own identity and its own verdict; verdicts come in the order of the transactions. A stream
reads ahead of its verdicts up to a limit; then flow control stops the client. A stream that breaks leaves every
transaction committed, so that it is replayed when it is sent again, or not stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from semel.engine.contract import EngineError
from semel.kernel.errors import Refused
from semel.server.grpc.call import GrpcCall, GrpcMethod
from semel.server.grpc.messages import Content, FramedMessage, unpack, unpacked_size
from semel.server.thread_pool import COPIED_BYTES, apart
from semel.surfaces.ledger.commands import PreparedWrite, WriteReplayed
from semel.surfaces.ledger.grpc.requests import GrpcWrite, caller_of_call
from semel.surfaces.ledger.grpc.write_answers import verdict_of
from semel.surfaces.ledger.service import LedgerCaller, LedgerService
from semel.surfaces.ledger.verdicts import WriteVerdict

AHEAD = 256
"""Limit of transactions of a stream that are queued and whose verdicts are not sent."""
UNREAD_MESSAGES = 16_384
"""Limit of messages of a stream that have arrived and are not read; flow control bounds their bytes."""

Prepare = Callable[[Content], list[tuple[GrpcWrite, PreparedWrite]]]


class TransactionStreams:
    """The method for a stream of transactions."""

    def __init__(self, service: LedgerService, prepare: Prepare) -> None:
        self._service = service
        self._prepare = prepare

    @property
    def method(self) -> GrpcMethod:
        """The method, with its path."""
        path = b"/ledger.v1.WriteService/StreamWrites"
        return GrpcMethod(path, bytes, self._stream, max_waiting=UNREAD_MESSAGES)

    def _was_answered(self, verdict: WriteVerdict) -> bool:
        return isinstance(verdict, WriteReplayed) and self._service.was_answered(verdict.committed)

    async def _stream(self, call: GrpcCall, _: None) -> None:
        """Read transactions and send verdicts until the client has ended its side and has all verdicts."""
        with self._service.context.live_reader(caller_of_call(call).caller.principal):
            await self._answer_stream(call)

    async def _answer_stream(self, call: GrpcCall) -> None:
        call.begin()
        stream = _WriteStream()
        sending = asyncio.create_task(self._send_verdicts(call, stream))
        try:
            try:
                await self._read_all(call, stream)
            finally:
                stream.end()
            await sending
        except Exception:
            await sending  # the verdicts before the message that cannot be read
            raise
        finally:
            sending.cancel()
            stream.drop()

    async def _read_all(self, call: GrpcCall, stream: _WriteStream) -> None:
        asked = caller_of_call(call)
        while (first := await call.next_message()) is not None:
            for framed in (first, *call.arrived_messages(AHEAD - 1)):
                await stream.has_room()
                await self._keep_pace(call, unpacked_size(framed, call.max_bytes))
                stream.add(await self._admit(call, asked, framed))

    async def _keep_pace(self, call: GrpcCall, size: int) -> None:
        """Charge a transaction as a request of its principal; beyond a quota the stream is not read for a while."""
        account, quotas = call.connection.account, self._service.context.quotas
        if account is None:
            return
        wait = account.wait(quotas.now())
        if wait:
            await asyncio.sleep(wait)
        account.spend(size)

    async def _admit(self, call: GrpcCall, asked: LedgerCaller, framed: FramedMessage) -> _StreamedWrite:
        """Queue one transaction. A refusal is its verdict; a message that cannot be read ends the stream."""
        size = unpacked_size(framed, call.max_bytes)
        try:
            [(order, prepared)] = await apart(size, self._parse, call, framed)
            wants = order.draft.wants_proof
            return _StreamedWrite(self._service.admit_write(asked, prepared, with_proof=wants), wants)
        except Refused as refused:
            self._service.audit_trail.refused(refused.refusal)
            return _StreamedWrite(refused, False)

    def _parse(self, call: GrpcCall, framed: FramedMessage) -> list[tuple[GrpcWrite, PreparedWrite]]:
        return self._prepare(unpack(framed, call.encoding, call.max_bytes))

    async def _send_verdicts(self, call: GrpcCall, stream: _WriteStream) -> None:
        """Send verdicts to the end. An error ends the call, and so the task that reads."""
        try:
            while (one := await stream.next()) is not None:
                verdict = await _settled(one.waiting)
                told = (verdict, one.wants_proof, self._was_answered(verdict))
                await call.send(await apart(call.held, verdict_of, *told, most=COPIED_BYTES))
        except Exception as error:  # noqa: BLE001 - any error becomes a status; the service logs it
            call.refuse(error)


class _StreamedWrite(NamedTuple):
    """A transaction of a stream: what waits for its verdict, or its refusal."""

    waiting: Coroutine[Any, Any, WriteVerdict] | Refused
    wants_proof: bool


async def _settled(waiting: Coroutine[Any, Any, WriteVerdict] | Refused) -> WriteVerdict:
    if isinstance(waiting, Refused):
        return waiting
    try:
        return await waiting
    except (Refused, EngineError) as error:
        return error


class _WriteStream:
    """The transactions of a stream whose verdicts are not sent, in order."""

    def __init__(self) -> None:
        self._writes: deque[_StreamedWrite] = deque()
        self._has_ended = False
        self._arrival = asyncio.Event()
        self._room = asyncio.Event()

    def add(self, one: _StreamedWrite) -> None:
        """Add a queued transaction."""
        self._writes.append(one)
        self._arrival.set()

    def end(self) -> None:
        """No more are added."""
        self._has_ended = True
        self._arrival.set()

    async def has_room(self) -> None:
        """Wait until another transaction may be queued."""
        while len(self._writes) >= AHEAD:
            self._room.clear()
            await self._room.wait()

    async def next(self) -> _StreamedWrite | None:
        """The first transaction without a verdict; None at the end."""
        while not self._writes:
            if self._has_ended:
                return None
            self._arrival.clear()
            await self._arrival.wait()
        self._room.set()
        return self._writes.popleft()

    def drop(self) -> None:
        """The stream is over: nothing waits for the remaining verdicts."""
        for one in self._writes:
            if not isinstance(one.waiting, Refused):
                one.waiting.close()
        self._writes.clear()
