"""Calls of clients over HTTP: push, pull and checkpoint.

A checkpoint is written to a spool file from one snapshot, then sent at the pace of the reader. The snapshot is closed
before the first byte is sent, so a slow reader holds a file and nothing of the store; and memory holds a piece at a
time, however large the gateway is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from semel.engine.caller import WaitingCaller
from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.server.http.answer import JSON, Answer, BodyWriter, ClientGoneError, StreamedAnswer
from semel.server.thread_pool import COPIED_BYTES, apart
from semel.surfaces.deltas.checkpoint import checkpoint
from semel.surfaces.deltas.commands import flaws_of
from semel.surfaces.deltas.exchange import PIECE_BYTES, DeltaRequest, answer_json, send_pieces
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.model import DeltaEntry, DeltaReplica
from semel.surfaces.deltas.plain_dialect import PlainCaller, plain_checkpoint
from semel.surfaces.deltas.proto.sync_pb2 import SyncPush
from semel.surfaces.deltas.reading import Claims, DeltaPage, entry_size
from semel.surfaces.deltas.service import DeltaService
from semel.surfaces.deltas.spool_files import SpoolFile
from semel.surfaces.deltas.wire.answers import page_body, plain_page_body, plain_pushed_body, pushed_body
from semel.surfaces.deltas.wire.frames import MEDIA_TYPE, UntellableError, checkpoint_frame, push_of, read_frame
from semel.surfaces.deltas.wire.push_body import PushBody, parse_push
from semel.surfaces.deltas.wire.urls import CheckpointQuery, parse_checkpoint, parse_pull

FORBIDDEN = "deltas:FORBIDDEN"
"""The error code of a push under the client id of another caller."""


class PushCalls:
    """The HTTP handlers of pushes."""

    def __init__(self, service: DeltaService) -> None:
        self._service = service

    async def push(self, request: DeltaRequest) -> Answer:
        """POST: push deltas."""
        size, asked = len(request.body), request.asked
        try:
            parse = partial(parse_push, request.body, self._service.policy)
            body = await apart(size, parse_for, parse, asked.authors)
        except Refused as refused:
            if refused.refusal.code == FORBIDDEN:
                self._service.audit_trail.no_access(asked.where)
            raise
        answer = await self._service.push(asked, request.gateway, body, size)
        if body.cursor is not None:
            settlement = await self._service.settle(asked, request.gateway, body)
            told = sum(map(entry_size, settlement.entries))
            return Answer(200, [JSON], await apart(size + told, plain_pushed_body, answer, settlement))
        return Answer(200, [JSON], await apart(size, pushed_body, answer, most=COPIED_BYTES))


def read_push_frame(raw: bytes, policy: DeltaPolicy, authors: tuple[str, ...] | None) -> PushBody:
    """Decode and parse the binary frame of a push.

    Both are done in one call, since a decoded message takes many times the memory of its bytes.
    """
    message = read_frame(raw)
    assert isinstance(message, SyncPush)
    return parse_for(partial(push_of, message, policy), authors)


def parse_for(parse: Callable[[str | None], PushBody], authors: tuple[str, ...] | None) -> PushBody:
    """Parse the push of a caller that may use one of several client ids (None is any); `parse` parses it for one id."""
    *others, last = authors or (None,)
    for author in others:
        try:
            return parse(author)
        except Refused as refused:
            # A refusal that lists deltas means that this id is the right one. Otherwise the next id is tried.
            if refused.refusal.code != FORBIDDEN or flaws_of(refused.refusal):
                raise
    return parse(last)


class PullCalls:
    """The HTTP handlers of pulls."""

    def __init__(self, service: DeltaService) -> None:
        self._service = service

    async def pull(self, request: DeltaRequest) -> Answer | StreamedAnswer:
        """GET: the next page."""
        wanted, asked = parse_pull(request.query), request.asked
        if request.is_head:
            return Answer(200, [JSON], b"")
        room = self._service.answers.share(asked.counted_as)
        try:
            if wanted.is_plain:
                page = await self._service.plain_pull(asked, request.gateway, wanted, room)
            else:
                page = await self._service.pull(asked, request.gateway, wanted.client, wanted.since, wanted.limit, room)
            render = plain_page_body if wanted.is_plain else page_body
            body = await apart(room.size, render, page, most=COPIED_BYTES)
        except BaseException:
            room.close()
            raise
        return StreamedAnswer([JSON, (b"content-length", b"%d" % len(body))], partial(send_pieces, body), room.close)

    async def actions(self, request: DeltaRequest) -> Answer:
        """GET: the connectors with actions. There are none."""
        return answer_json({"connectors": {}})


PLAIN_MEDIA_TYPE = b"application/x-ndjson"
MAX_WRITTEN = 2
"""Limit of checkpoints that are written at a time: each one uses a read connection of the store."""
FRAME_BYTES = 256 * 1024
"""Approximate limit of bytes of one frame of the stream; a frame always holds at least one row."""
FRAME_ENTRIES = 1_000


class WrittenCheckpoint(NamedTuple):
    """The content of a checkpoint file: the cursor behind it, and the number of rows."""

    cursor: int
    rows: int


class CheckpointCalls:
    """The HTTP handlers of checkpoints."""

    def __init__(self, service: DeltaService) -> None:
        self._service = service
        self._writers = asyncio.Semaphore(MAX_WRITTEN)

    async def checkpoint(self, request: DeltaRequest) -> Answer | StreamedAnswer:
        """GET: all rows that the caller may see. The client acknowledges them by a pull from the checkpoint's cursor.

        A HEAD request writes the checkpoint too, to find out whether that succeeds.
        """
        asked = request.asked
        wanted = parse_checkpoint(request.query)
        spool = self._service.spool_files.open(asked.counted_as)
        try:
            written = await self._write(request, wanted, spool)
        except BaseException:
            spool.close()
            raise
        headers = [
            (b"content-type", PLAIN_MEDIA_TYPE if wanted.is_plain else MEDIA_TYPE),
            (b"content-length", b"%d" % spool.size),
            (b"x-checkpoint-hlc", b"%d" % written.cursor),
        ]
        return StreamedAnswer(headers, partial(self._send, spool, written, asked.caller), spool.close)

    def _replica(self, request: DeltaRequest, client: str | None) -> DeltaReplica | None:
        """The client that will pull from the checkpoint: the one in the query, or the one of the credential."""
        asked = request.asked
        if client is None and asked.is_named:
            client = json_text(asked.principal.client_id)
        is_known = client is not None and asked.speaks_for(client)
        return self._service.replica(asked, request.gateway, client) if client is not None and is_known else None

    async def _write(self, request: DeltaRequest, wanted: CheckpointQuery, spool: SpoolFile) -> WrittenCheckpoint:
        asked, gateway = request.asked, request.gateway
        look: Callable[[Reading], WrittenCheckpoint | None]
        if wanted.is_plain:
            asker = PlainCaller(gateway, wanted.client or "", asked.claims)
            look = partial(_write_plain, asker=asker, spool=spool, caller=asked.caller)
        else:
            replica = self._replica(request, wanted.client)
            look = partial(
                _write, gateway=gateway, claims=asked.claims, replica=replica, spool=spool, caller=asked.caller
            )
        async with self._writers:
            try:
                written = await self._service.look(look)
            except UntellableError as error:
                raise Refused("deltas:NOT_FOUND", str(error)) from None
        if written is None:
            raise Refused("deltas:NOT_FOUND", "There is no checkpoint for this client; pull from 0.")
        return written

    async def _send(
        self, spool: SpoolFile, written: WrittenCheckpoint, caller: WaitingCaller, writer: BodyWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        self._service.audit_trail.given(written.rows)
        sent = 0
        while sent < spool.size and not caller.gone:
            piece = await loop.run_in_executor(None, spool.read, PIECE_BYTES)
            sent += len(piece)
            await writer.write(piece)
        await writer.write(b"")


def _write(
    reading: Reading,
    *,
    gateway: str,
    claims: Claims,
    replica: DeltaReplica | None,
    spool: SpoolFile,
    caller: WaitingCaller,
) -> WrittenCheckpoint | None:
    """Write the frames of a checkpoint from the start of the file, since a read of the store may be repeated."""
    found = checkpoint(reading, gateway, claims, replica)
    if found is None:
        return None
    spool.restart()
    rows = 0
    for entries in _pieces(found.entries, lambda: caller.gone):
        rows += len(entries)
        spool.write(checkpoint_frame(entries, found.cursor, has_more=True))
    spool.write(checkpoint_frame((), found.cursor, has_more=False))
    spool.rewind()
    return WrittenCheckpoint(found.cursor, rows)


def _write_plain(reading: Reading, *, asker: PlainCaller, spool: SpoolFile, caller: WaitingCaller) -> WrittenCheckpoint:
    """Write a checkpoint in the plain dialect: one line for each piece, and a final line that marks the end."""
    found, epoch = plain_checkpoint(reading, asker)
    spool.restart()
    rows = 0
    for entries in _pieces(found.entries, lambda: caller.gone):
        rows += len(entries)
        spool.write(plain_page_body(DeltaPage(entries, found.cursor, True, epoch=epoch)) + b"\n")
    spool.write(plain_page_body(DeltaPage((), found.cursor, False, epoch=epoch)) + b"\n")
    spool.rewind()
    return WrittenCheckpoint(found.cursor, rows)


def _pieces(entries: Iterator[DeltaEntry], is_gone: Callable[[], bool]) -> Iterator[list[DeltaEntry]]:
    """Entries in groups that fit into a frame; stops when the client has disconnected."""
    piece: list[DeltaEntry] = []
    size = 0
    for entry in entries:
        if piece and (size > FRAME_BYTES or len(piece) == FRAME_ENTRIES):
            yield piece
            if is_gone():
                raise ClientGoneError
            piece, size = [], 0
        piece.append(entry)
        size += entry_size(entry)
    if piece:
        yield piece
