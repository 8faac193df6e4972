"""Checkpoints over HTTP: written to a file from one snapshot, then sent at the pace of the client.

The snapshot is let go before the first byte leaves, so a slow reader holds a file and nothing of the store; and memory
holds a piece at a time, however large the gateway is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from semel.contracts.deltas.checkpoint import checkpoint
from semel.contracts.deltas.model import Entry, Replica
from semel.contracts.deltas.plain_dialect import PlainAsker, plain_checkpoint
from semel.contracts.deltas.reading import Claims, Page, entry_size
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.contracts.deltas.wire.answers import plain_page_body
from semel.contracts.deltas.wire.query import CheckpointQuery, parse_checkpoint
from semel.engine.engine import Caller
from semel.engine.reading import Reading
from semel.kernel.delta_id import json_text
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import PIECE_BYTES, Request
from semel.server.deltas.frames import MEDIA_TYPE, UntellableError, checkpoint_frame
from semel.server.deltas.spools import Spool
from semel.server.http.answer import Answer, BodyWriter, ClientGoneError, StreamedAnswer

PLAIN_MEDIA_TYPE = b"application/x-ndjson"
MAX_WRITTEN = 2
"""Limit of checkpoints that are written at a time: each has a reader of the store for itself."""
FRAME_BYTES = 256 * 1024
"""About what one frame of the stream holds; a row always fits."""
FRAME_ENTRIES = 1_000


class Written(NamedTuple):
    """The content of a checkpoint file: the cursor behind it, and the number of rows."""

    cursor: int
    rows: int


class Checkpoints:
    """The HTTP handlers of checkpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._writers = asyncio.Semaphore(MAX_WRITTEN)

    async def checkpoint(self, request: Request) -> Answer | StreamedAnswer:
        """GET of everything that the caller may see. Where it ends, the client shows when it goes on from there.

        For a HEAD it is written as well: only then it is known that it could be.
        """
        asked = request.asked
        wanted = parse_checkpoint(request.query)
        spool = self._desk.spools.open(asked.counted_as)
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

    def _replica(self, request: Request, client: str | None) -> Replica | None:
        """Who will go on from it: the client that the query names, or the one that the credential is for."""
        asked = request.asked
        if client is None and asked.is_named:
            client = json_text(asked.principal.client_id)
        is_known = client is not None and asked.speaks_for(client)
        return self._desk.replica(asked, request.gateway, client) if client is not None and is_known else None

    async def _write(self, request: Request, wanted: CheckpointQuery, spool: Spool) -> Written:
        asked, gateway = request.asked, request.gateway
        look: Callable[[Reading], Written | None]
        if wanted.is_plain:
            asker = PlainAsker(gateway, wanted.client or "", asked.claims)
            look = partial(_write_plain, asker=asker, spool=spool, caller=asked.caller)
        else:
            replica = self._replica(request, wanted.client)
            look = partial(
                _write, gateway=gateway, claims=asked.claims, replica=replica, spool=spool, caller=asked.caller
            )
        async with self._writers:
            try:
                written = await self._desk.look(look)
            except UntellableError as error:
                raise RefusedDeltas("NOT_FOUND", str(error)) from None
        if written is None:
            raise RefusedDeltas("NOT_FOUND", "There is no checkpoint for this client; pull from 0.")
        return written

    async def _send(self, spool: Spool, written: Written, caller: Caller, writer: BodyWriter) -> None:
        loop = asyncio.get_running_loop()
        self._desk.journal.given(written.rows)
        sent = 0
        while sent < spool.size and not caller.gone:
            piece = await loop.run_in_executor(None, spool.read, PIECE_BYTES)
            sent += len(piece)
            await writer.write(piece)
        await writer.write(b"")


def _write(
    reading: Reading, *, gateway: str, claims: Claims, replica: Replica | None, spool: Spool, caller: Caller
) -> Written | None:
    """Write the frames of a checkpoint, from the file's beginning: a read of the store may have to be repeated."""
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
    return Written(found.cursor, rows)


def _write_plain(reading: Reading, *, asker: PlainAsker, spool: Spool, caller: Caller) -> Written:
    """The same in the plain dialect: a line for each piece, and one that says that it was the last."""
    found, epoch = plain_checkpoint(reading, asker)
    spool.restart()
    rows = 0
    for entries in _pieces(found.entries, lambda: caller.gone):
        rows += len(entries)
        spool.write(plain_page_body(Page(entries, found.cursor, True, epoch=epoch)) + b"\n")
    spool.write(plain_page_body(Page((), found.cursor, False, epoch=epoch)) + b"\n")
    spool.rewind()
    return Written(found.cursor, rows)


def _pieces(entries: Iterator[Entry], is_gone: Callable[[], bool]) -> Iterator[list[Entry]]:
    """As many entries at a time as fit into a frame; stops once the client has disconnected."""
    piece: list[Entry] = []
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
