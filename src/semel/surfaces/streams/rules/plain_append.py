"""The express decision on plain appends, for a whole batch: the result of `append` without its row objects.

An append is plain if it adds content to an open stream without a time to live and without subscribers, has the content
type of the stream, has a fresh idempotency key or none, and has no producer, sequence, closure or precondition. The
retry of an append with a key is plain too. Every other append is left to `append`. Both give the same rows and answers;
`tests/streams/rules/test_plain_append.py` compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from semel.engine.contract import Write
from semel.engine.plain_write import LoadedByKey, PlainContract, PlainResult, PlainWrite
from semel.kernel.clock import Now
from semel.kernel.verdict import Verdict, Window, judge
from semel.store.protocol import AnyTable, Row
from semel.store.row_checksum import PRIME
from semel.store.table import Key
from semel.surfaces.epoch import EPOCH, EPOCH_KEY
from semel.surfaces.streams.commands import Append, Appended, Content
from semel.surfaces.streams.rules.expiry import is_alive
from semel.surfaces.streams.rules.media_type import same_media_type
from semel.surfaces.streams.rules.offsets import epoch_at
from semel.surfaces.streams.tables import CHUNK, RECEIPT, STREAM, ChunkRow, ReceiptRow, StreamRow

STATUS = 204
_new = tuple.__new__
"""Makes a named tuple in a third of the time that its own constructor takes."""


class PlainAppend(PlainWrite):
    """One plain append, and its caller."""

    __slots__ = ("content_type", "data", "fingerprint", "key", "messages", "scope")

    def __init__(
        self,
        contract: PlainContract,
        lock: bytes,
        scope: bytes,
        key: bytes | None,
        fingerprint: bytes,
        content_type: bytes,
        content: Content,
        principal: str = "",
    ) -> None:
        super().__init__(contract, lock, len(content.data), principal)
        self.scope = scope
        self.key = key
        self.fingerprint = fingerprint
        self.content_type = content_type
        self.data = content.data
        self.messages = content.messages

    def full(self) -> Write:
        """The same append for the full rules."""
        content = Content(self.data, self.messages)
        command = Append(self.scope, self.key, self.fingerprint, self.content_type, content, False, None, None, None)
        return Write(self.contract, command, self.size)


def is_plain_append(command: Append) -> bool:
    """Whether an append may be plain, by its request alone."""
    return (
        command.flaw is None
        and command.content_type is not None
        and command.producer is None
        and command.seq is None
        and not command.closes
        and command.if_match is None
        and command.content.flaw is None
        and bool(command.content.data)
    )


def plain_keys(writes: Sequence[PlainAppend]) -> Mapping[AnyTable, Iterable[Key]]:
    """The streams, the receipts of the keys, and the epoch."""
    streams = {(one.scope,): None for one in writes}
    receipts = [(one.scope, one.key) for one in writes if one.key is not None]
    return {STREAM: streams, EPOCH: (EPOCH_KEY,), RECEIPT: receipts}


class _Tail(NamedTuple):
    """A stream that accepts plain appends, the time of the decision, and the expiry of its receipts."""

    row: StreamRow
    now_ms: int
    expires_at: int


def decide_plain(rows: LoadedByKey, writes: Sequence[PlainAppend], now: Now, keep: Window) -> PlainResult:
    """Decide the appends in their order."""
    receipts, epoch_row = rows[RECEIPT], rows[EPOCH].get(EPOCH_KEY)
    epoch = 0 if epoch_row is None else epoch_row[1]
    scopes = {one.scope for one in writes}
    open_streams = {scope: _opened(rows[STREAM].get((scope,)), epoch, now, keep) for scope in scopes}
    tails = {scope: stream.row.tail for scope, stream in open_streams.items() if stream is not None}
    seen: set[tuple[bytes, bytes]] = set()
    decided: list[tuple[PlainWrite, Any]] = []
    left: list[PlainWrite] = []
    chunks: list[ChunkRow] = []
    new_receipts: list[ReceiptRow] = []
    for one in writes:
        scope, key, data = one.scope, one.key, one.data
        stream = open_streams[scope]
        if stream is None:
            left.append(one)
            continue
        row, now_ms, expires_at = stream
        if one.content_type != row.content_type and not same_media_type(one.content_type, row.content_type):
            left.append(one)
            continue
        if key is not None:
            place = (scope, key)
            if place in receipts or place in seen:
                replay = None if place in seen else _replay(receipts[place], one, row, now)
                if replay is None:
                    left.append(one)
                else:
                    decided.append((one, replay))
                continue
            seen.add(place)
        tail = tails[scope] = tails[scope] + len(data)
        messages = one.messages
        checksum = crc32(data, (tail ^ messages ^ now_ms) % PRIME)  # as `chunk_checksum`, without its row
        chunks.append(_new(ChunkRow, (row.id, tail, data, messages, now_ms, checksum)))
        if key is not None:
            checksum = crc32(b"".join((scope, key, row.id, one.fingerprint)), (expires_at ^ STATUS ^ tail) % PRIME)
            receipt = (scope, key, row.id, one.fingerprint, expires_at, STATUS, tail, 0, None, None, checksum)
            new_receipts.append(_new(ReceiptRow, receipt))
        decided.append((one, _new(Appended, (STATUS, tail, False, None, None, False, True, epoch))))
    if not chunks:
        return PlainResult(decided, left, {}, {}, ())
    changed = [
        _new(StreamRow, (*stream.row[:9], stream.now_ms, tails[scope], *stream.row[11:]))
        for scope, stream in open_streams.items()
        if stream is not None and tails[scope] != stream.row.tail
    ]
    inserts: dict[AnyTable, Sequence[Row]] = {CHUNK: chunks, RECEIPT: new_receipts} if new_receipts else {CHUNK: chunks}
    return PlainResult(decided, left, inserts, {STREAM: changed}, [row.id for row in changed])


def _replay(receipt: ReceiptRow, one: PlainAppend, stream: StreamRow, now: Now) -> Appended | None:
    """The answer to a retry; None if the receipt has expired, or is of another request or a deleted stream."""
    if receipt.id != stream.id:
        return None
    if judge(receipt, one.fingerprint, now.expiry_ms) is not Verdict.REPLAY:
        return None
    tail_epoch = epoch_at(stream, receipt.tail)
    closed = bool(receipt.closed)
    return Appended(receipt.status, receipt.tail, closed, receipt.epoch, receipt.seq, True, tail_epoch=tail_epoch)


def _opened(row: StreamRow | None, epoch: int, now: Now, keep: Window) -> _Tail | None:
    """The stream, if plain appends to it can be decided here; otherwise None."""
    if row is None or row.closed or row.ttl_seconds is not None or row.epoch != epoch or not is_alive(row, now):
        return None
    if row.subscribed:
        return None
    now_ms = now.not_before(row.updated_at).ms
    return _Tail(row, now_ms, keep.expires_at(now_ms))
