"""`client.streams`: create, fork, append, read, follow, close and delete streams.

Promise: an append that was answered is stored once, however often it was retried. An append without a key gets a new
one, which every attempt uses; with the caller's own key it is one append even if this program crashes and appends
again. A read gives every byte once and in order, if the caller continues at `next_offset`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from secrets import token_bytes
from typing import Any
from urllib.parse import quote, urlencode

from semel.client.errors import CallError, InvalidArgumentError, NotFoundError, OutcomeUnknown, RefusedError
from semel.client.identity import NamedCall, ProducerAppend, Resolution, StreamAppend
from semel.client.json_answer import Facts
from semel.client.list_walk import ListWalk
from semel.client.retry import ClientCaller
from semel.client.streams.content import JSON, content_of, json_text
from semel.client.streams.producer import AsyncProducer, Producer
from semel.client.streams.subscriptions import AsyncSubscriptions, BlockingSubscriptions
from semel.client.streams.tail import MOST_PAGE_BYTES, StreamFollower, page_of
from semel.client.streams.values import (
    START,
    AppendResult,
    ContentPage,
    ProducerList,
    StreamInfo,
    StreamList,
    StreamProducer,
)
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientAnswer, ClientRequest
from semel.kernel.clock import utc_text
from semel.kernel.keys import time_ordered_uuid

PAGE_STREAMS = 1_000


def stream_path(name: str) -> str:
    """The path of a stream: slashes stay, other reserved characters are encoded."""
    try:
        return f"/v1/stream/{quote(name.encode('utf-8', 'surrogateescape'), safe='/')}"
    except UnicodeEncodeError:
        raise InvalidArgumentError("The name of a stream must be valid Unicode.") from None


def fresh_key() -> str:
    """A unique key; keys sort by creation time."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, token_bytes(10))


class AsyncStreams:
    """The streams of one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    async def create(
        self,
        name: str,
        *,
        content_type: str | None = None,
        ttl: int | None = None,
        expires_at: datetime | str | None = None,
        retention_age: int | None = None,
        retention_bytes: int | None = None,
        data: bytes | None = None,
        closed: bool = False,
    ) -> StreamInfo:
        """Create a stream, or confirm that an equal one exists; `data` is its first content.

        `ttl` is in seconds without use. Content older than `retention_age` seconds, or beyond the newest
        `retention_bytes`, is deleted; 0 means no limit. A stream of this name with other settings raises
        `ConflictError`.
        """
        headers = _headers(
            content_type=content_type,
            stream_ttl=ttl,
            stream_expires_at=_time_text(expires_at),
            stream_retention_age=retention_age,
            stream_retention_bytes=retention_bytes,
            stream_closed="true" if closed else None,
        )
        return await self._put(name, headers, data)

    async def fork(
        self,
        source: str,
        name: str,
        *,
        offset: str | None = None,
        sub_offset: int | None = None,
        content_type: str | None = None,
        ttl: int | None = None,
        expires_at: datetime | str | None = None,
        retention_age: int | None = None,
        retention_bytes: int | None = None,
        data: bytes | None = None,
        closed: bool = False,
    ) -> StreamInfo:
        """Create a stream that begins with the content of `source` up to `offset`, by default up to its tail.

        `sub_offset` takes this many further messages, or bytes, of the append after `offset`. Other arguments are those
        of `create`; those that are not given are the source's. Later appends to one are not seen in the other. A fork
        that exists is confirmed; another stream of that name raises `ConflictError`.
        """
        headers = _headers(
            stream_forked_from=stream_path(source),
            stream_fork_offset=offset,
            stream_fork_sub_offset=sub_offset,
            content_type=content_type,
            stream_ttl=ttl,
            stream_expires_at=_time_text(expires_at),
            stream_retention_age=retention_age,
            stream_retention_bytes=retention_bytes,
            stream_closed="true" if closed else None,
        )
        return await self._put(name, headers, data)

    async def _put(self, name: str, headers: dict[str, str], data: bytes | None) -> StreamInfo:
        path = stream_path(name)
        request = ClientRequest("PUT", path, data, headers)
        return await self._caller.answer_as(lambda answer: _info(name, answer), request, NamedCall("PUT", path))

    async def append(
        self,
        name: str,
        data: Any,
        *,
        key: str | None = None,
        content_type: str | None = None,
        seq: str | None = None,
        if_match: str | None = None,
        close: bool = False,
    ) -> AppendResult:
        """Append content once: bytes, text, or a value that becomes one JSON message.

        `seq` must be greater than the last one of the stream; `if_match` is the `etag` of a page that reached the tail.
        `close` closes the stream in the same step.
        """
        body, media_type = content_of(data, content_type)
        return await self._append(name, body, media_type, key, seq, if_match, close)

    async def append_many(self, name: str, messages: Iterable[Any], *, key: str | None = None) -> AppendResult:
        """Append several JSON messages as one append: all or none of them are stored."""
        return await self._append(name, json_text(list(messages)), JSON, key, None, None, False)

    async def close(self, name: str, *, key: str | None = None, seq: str | None = None) -> AppendResult:
        """Close a stream: no more content can follow. Closing a closed stream changes nothing."""
        return await self._append(name, None, None, key, seq, None, True)

    async def _append(
        self,
        name: str,
        body: bytes | None,
        content_type: str | None,
        key: str | None,
        seq: str | None,
        if_match: str | None,
        close: bool,
    ) -> AppendResult:
        used = fresh_key() if key is None else key
        headers = {"Idempotency-Key": used}
        if content_type is not None:
            headers["Content-Type"] = content_type
        if seq is not None:
            headers["Stream-Seq"] = seq
        if if_match is not None:
            headers["If-Match"] = if_match
        if close:
            headers["Stream-Closed"] = "true"
        request, identity = ClientRequest("POST", stream_path(name), body, headers), StreamAppend(name, used)
        return await self._caller.answer_as(lambda answer: _appended(answer, used), request, identity)

    @cached_property
    def subscriptions(self) -> AsyncSubscriptions:
        """Durable cursors over many streams, with wakes."""
        return AsyncSubscriptions(self._caller)

    def producer(self, name: str, producer_id: str, *, epoch: int, content_type: str | None = None) -> AsyncProducer:
        """A writer that numbers its appends. A restarted one takes a higher `epoch`, which fences the one before."""
        return AsyncProducer(self._caller, stream_path(name), name, producer_id, epoch, content_type)

    async def read(self, name: str, offset: str = START) -> ContentPage:
        """A page of stored content after an offset: up to 1 MiB, but at least one whole append."""
        path = f"{stream_path(name)}?{urlencode({'offset': offset})}"
        answer = await self._caller.call(ClientRequest("GET", path, most_bytes=MOST_PAGE_BYTES))
        return self._caller.understood(lambda: page_of(answer))

    def tail(self, name: str, offset: str = START, *, live: bool = True) -> StreamFollower:
        """The pages after an offset, then new content as it is appended; it resumes after a lost connection.

        It ends when the stream is closed and all was given; without `live`, at the tail. Only the last page may be
        empty.
        """
        return StreamFollower(self._caller, stream_path(name), offset, live=live)

    def pages(self, name: str, offset: str = START) -> StreamFollower:
        """The pages of stored content after an offset, up to the tail at that time."""
        return self.tail(name, offset, live=False)

    async def info(self, name: str) -> StreamInfo:
        """A stream's media type, tail and state."""
        path = stream_path(name)
        try:
            answer = await self._caller.call(ClientRequest("HEAD", path))
        except RefusedError as error:
            if error.may_pass:
                raise
            # A refused HEAD has no body, and so no sentence; a GET without content is refused with one.
            answer = await self._caller.call(ClientRequest("GET", f"{path}?offset=now"))
        return self._caller.understood(lambda: _info(name, answer))

    async def delete(self, name: str) -> None:
        """Delete a stream, its content and its keys. One that does not exist raises `NotFoundError`."""
        path = stream_path(name)
        attempts = 0

        def again(error: CallError) -> ClientRequest:
            nonlocal attempts
            attempts += error.is_unsettled
            return ClientRequest("DELETE", path)

        try:
            await self._caller.call(ClientRequest("DELETE", path), NamedCall("DELETE", path), again)
        except NotFoundError:
            if not attempts:
                raise  # else an earlier attempt, whose answer was lost, has deleted it

    async def list(
        self, prefix: str = "", *, after: str = "", limit: int = PAGE_STREAMS, source: str | None = None
    ) -> StreamList:
        """A page of the streams whose names begin with `prefix`, in the order of their names.

        With `source` it has the forks of that stream among the next 1,000 names: it may be empty before the end.
        """
        asked: dict[str, Any] = {"prefix": prefix, "after": after, "limit": limit}
        facts = await self._list("/v1/streams", asked if source is None else asked | {"source": source})
        return self._caller.understood(lambda: StreamList(list(facts["streams"]), facts["after"]))

    def walk(self, prefix: str = "", *, source: str | None = None) -> ListWalk[dict[str, Any]]:
        """All of `list`, page by page."""
        return ListWalk(
            lambda after: self.list(prefix, after=after, limit=PAGE_STREAMS, source=source),
            lambda page: page.streams,
            "",
        )

    async def _producers(self, name: str, after: str) -> ProducerList:
        asked = {"stream": name, "after": after, "limit": PAGE_STREAMS}
        facts = await self._list("/v1/streams/producers", asked)
        return self._caller.understood(
            lambda: ProducerList(
                [StreamProducer(one["id"], int(one["epoch"]), int(one["seq"])) for one in facts["producers"]],
                facts["after"],
            )
        )

    def producers(self, name: str) -> ListWalk[StreamProducer]:
        """All producers of a stream, page by page, each with its epoch and its last accepted sequence."""
        return ListWalk(lambda after: self._producers(name, after), lambda page: page.producers, "")

    async def _list(self, path: str, asked: dict[str, Any]) -> Facts:
        query = urlencode(asked, errors="surrogateescape")
        return await self._caller.facts(ClientRequest("GET", f"{path}?{query}"))

    async def resolve(self, identity: StreamAppend | ProducerAppend) -> Resolution:
        """Whether an append is stored, without sending it again."""
        if isinstance(identity, StreamAppend):
            headers = {"Lookup-Key": identity.key}
        else:
            headers = {"Lookup-Producer": identity.producer}
        try:
            answer = await self._caller.call(ClientRequest("HEAD", stream_path(identity.stream), None, headers))
        except NotFoundError:
            return Resolution(identity, False, {})
        return self._caller.understood(lambda: _resolution(identity, answer))


def _resolution(identity: StreamAppend | ProducerAppend, answer: ClientAnswer) -> Resolution:
    if isinstance(identity, StreamAppend):
        offset = answer.headers.get("idempotency-offset")
        return Resolution(identity, offset is not None, {} if offset is None else {"offset": offset})
    epoch, seq = (int(answer.headers.get(name, "-1")) for name in ("producer-epoch", "producer-seq"))
    if epoch > identity.epoch:
        raise OutcomeUnknown(
            "A newer epoch of the producer has taken over: the server no longer has the numbers of this one.", identity
        )
    is_committed = epoch == identity.epoch and seq >= identity.seq
    return Resolution(identity, is_committed, {"epoch": epoch, "seq": seq})


def _headers(**values: str | int | None) -> dict[str, str]:
    return {name.replace("_", "-"): str(value) for name, value in values.items() if value is not None}


def _time_text(at: datetime | str | None) -> str | None:
    return utc_text(round(at.timestamp() * 1_000)) if isinstance(at, datetime) else at


def _info(name: str, answer: ClientAnswer) -> StreamInfo:
    ttl, age, size = (
        None if text is None else int(text)
        for text in map(answer.headers.get, ("stream-ttl", "stream-retention-age", "stream-retention-bytes"))
    )
    return StreamInfo(
        name,
        answer.headers["content-type"],
        answer.headers["stream-next-offset"],
        answer.is_true("stream-closed"),
        answer.status == 201,
        ttl,
        answer.headers.get("stream-expires-at"),
        age,
        size,
        answer.headers.get("stream-earliest-offset"),
    )


def _appended(answer: ClientAnswer, key: str) -> AppendResult:
    offset = answer.headers["stream-next-offset"]
    return AppendResult(offset, answer.is_true("idempotency-replayed"), answer.is_true("stream-closed"), key)


class BlockingStreams(BlockingCalls[AsyncStreams]):
    """The streams of one server, from synchronous code."""

    create = blocking(AsyncStreams.create)
    fork = blocking(AsyncStreams.fork)
    append = blocking(AsyncStreams.append)
    append_many = blocking(AsyncStreams.append_many)
    producers = blocking_iterator(AsyncStreams.producers)
    close = blocking(AsyncStreams.close)
    read = blocking(AsyncStreams.read)
    pages = blocking_iterator(AsyncStreams.pages)
    tail = blocking_iterator(AsyncStreams.tail)
    info = blocking(AsyncStreams.info)
    delete = blocking(AsyncStreams.delete)
    list = blocking(AsyncStreams.list)
    walk = blocking_iterator(AsyncStreams.walk)
    resolve = blocking(AsyncStreams.resolve)

    @cached_property
    def subscriptions(self) -> BlockingSubscriptions:
        """Durable cursors over many streams, with wakes."""
        return BlockingSubscriptions(self._calls.subscriptions)

    def producer(self, name: str, producer_id: str, *, epoch: int, content_type: str | None = None) -> Producer:
        """A writer that numbers its appends. A restarted one takes a higher `epoch`, which fences the one before."""
        return Producer(self._calls.producer(name, producer_id, epoch=epoch, content_type=content_type))
