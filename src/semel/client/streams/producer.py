"""An idempotent producer: a writer that numbers its appends 0, 1, 2, and so on within an epoch.

Promise: appends are stored once and in the order of the calls. The number rises only after an answer: after
`OutcomeUnknown`, `append` the same content again, and it is stored once. After a crash, take a higher epoch: it begins
at 0 and fences the writer before, so a late request of that one is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.client.errors import CallError, ConflictError, InvalidArgumentError
from semel.client.identity import ProducerAppend
from semel.client.retry import ClientCaller
from semel.client.streams.content import content_of
from semel.client.streams.values import AppendResult
from semel.client.sync_calls import BlockingCalls, blocking
from semel.client.transport.http_transport import ClientAnswer, ClientRequest


class ProducerContent(NamedTuple):
    """What is sent under one number."""

    body: bytes | None
    content_type: str | None
    close: bool


class AsyncProducer:
    """The numbered appends of one writer to one stream; calls at once take their turns."""

    def __init__(
        self, caller: ClientCaller, path: str, stream: str, producer_id: str, epoch: int, content_type: str | None
    ) -> None:
        if epoch < 0:
            raise InvalidArgumentError("The epoch of a producer must not be negative.")
        self._caller = caller
        self._path = path
        self._content_type = content_type
        self._unsettled: ProducerContent | None = None
        """The content whose outcome is unknown: only it may be sent under the current number."""
        self._turn = caller.transport.network.limit(1)
        self.stream = stream
        self.producer_id = producer_id
        self.epoch = epoch
        self.seq = 0
        """The number of the next append."""

    async def append(self, data: Any, *, close: bool = False) -> AppendResult:
        """Append content under the next number; `close` closes the stream in the same step."""
        body, content_type = content_of(data, self._content_type)
        return await self._send(body, content_type, close)

    async def close(self) -> AppendResult:
        """Close the stream under the next number."""
        return await self._send(None, None, True)

    async def _send(self, body: bytes | None, content_type: str | None, close: bool) -> AppendResult:
        """Send under the next number; calls at once take their turns."""
        await self._turn.acquire()
        try:
            return await self._send_in_turn(ProducerContent(body, content_type, close))
        finally:
            self._turn.release()

    async def _send_in_turn(self, content: ProducerContent) -> AppendResult:
        before = self._unsettled
        if before is not None and before != content:
            raise ConflictError(
                409, "unsettled", "The append before this one has no answer: append the same content first.", {}, 0.0
            )
        identity = ProducerAppend(self.stream, self.producer_id, self.epoch, self.seq)
        # Until there is an answer only this content may be sent under this number, also after a cancelled call.
        self._unsettled = content
        try:
            stored = await self._caller.answer_as(
                lambda answer: _appended(answer, is_close_only=content.body is None), self._request(content), identity
            )
        except (CallError, InvalidArgumentError) as error:
            if before is None and not (isinstance(error, CallError) and error.is_unsettled):
                self._unsettled = None  # nothing was stored: the number is free
            raise
        self._unsettled = None
        self.seq += 1
        return stored

    def _request(self, content: ProducerContent) -> ClientRequest:
        headers = {
            "Producer-Id": self.producer_id,
            "Producer-Epoch": str(self.epoch),
            "Producer-Seq": str(self.seq),
        }
        if content.content_type is not None:
            headers["Content-Type"] = content.content_type
        if content.close:
            headers["Stream-Closed"] = "true"
        return ClientRequest("POST", self._path, content.body, headers)


def _appended(answer: ClientAnswer, *, is_close_only: bool) -> AppendResult:
    seq = int(answer.headers["producer-seq"])
    replayed = answer.status == 204 and not is_close_only
    return AppendResult(answer.headers["stream-next-offset"], replayed, answer.is_true("stream-closed"), None, seq)


class Producer(BlockingCalls[AsyncProducer]):
    """The numbered appends of one writer to one stream, from synchronous code."""

    append = blocking(AsyncProducer.append)
    close = blocking(AsyncProducer.close)

    @property
    def seq(self) -> int:
        """The number of the next append."""
        return self._calls.seq
