"""Checkpoints over HTTP: written to a file from one snapshot, then sent at the pace of whoever reads.

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
from semel.contracts.deltas.reading import Claims, entry_size
from semel.contracts.deltas.refusals import RefusedDeltas
from semel.contracts.deltas.wire.query import parse_checkpoint
from semel.engine.engine import Caller
from semel.engine.reading import Reading
from semel.kernel.delta_id import json_text
from semel.server.asgi import Send
from semel.server.body import ClientGoneError
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import PIECE_BYTES, Answer, Flow, Request
from semel.server.deltas.frames import MEDIA_TYPE, UntellableError, checkpoint_frame
from semel.server.deltas.spools import Spool

MAX_WRITTEN = 2
"""So many checkpoints are written at a time: each has a reader of the store for itself."""
FRAME_BYTES = 256 * 1024
"""About what one frame of the stream holds; a row always fits."""
FRAME_ENTRIES = 1_000


class Written(NamedTuple):
    """What a file holds: the cursor behind it, and how many rows."""

    cursor: int
    rows: int


class Checkpoints:
    """The part of the host that sends whole gateways."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._writers = asyncio.Semaphore(MAX_WRITTEN)

    async def checkpoint(self, request: Request) -> Answer | Flow:
        """GET of everything that the caller may see. Where it ends, the client shows when it goes on from there.

        For a HEAD it is written as well: only then it is known that it could be.
        """
        asked = request.asked
        replica = self._replica(request)
        spool = self._desk.spools.open(asked.counted_as)
        try:
            written = await self._write(request, replica, spool)
        except BaseException:
            spool.close()
            raise
        headers = [
            (b"content-type", MEDIA_TYPE),
            (b"content-length", b"%d" % spool.size),
            (b"x-checkpoint-hlc", b"%d" % written.cursor),
        ]
        return Flow(headers, partial(self._send, spool, written, asked.caller), spool.close)

    def _replica(self, request: Request) -> Replica | None:
        """Who will go on from it: the client that the query names, or the one that the credential is for."""
        asked = request.asked
        client = parse_checkpoint(request.query)
        if client is None and asked.is_named:
            client = json_text(asked.principal.client_id)
        is_known = client is not None and asked.speaks_for(client)
        return self._desk.replica(asked, request.gateway, client) if client is not None and is_known else None

    async def _write(self, request: Request, replica: Replica | None, spool: Spool) -> Written:
        asked = request.asked
        look = partial(
            _write, gateway=request.gateway, claims=asked.claims, replica=replica, spool=spool, caller=asked.caller
        )
        async with self._writers:
            try:
                written = await self._desk.look(look)
            except UntellableError as error:
                raise RefusedDeltas("NOT_FOUND", str(error)) from None
        if written is None:
            raise RefusedDeltas("NOT_FOUND", "There is no checkpoint for this client; pull from 0.")
        return written

    async def _send(self, spool: Spool, written: Written, caller: Caller, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self._desk.journal.given(written.rows)
        sent = 0
        while sent < spool.size and not caller.gone:
            piece = await loop.run_in_executor(None, spool.read, PIECE_BYTES)
            sent += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _write(
    reading: Reading, *, gateway: str, claims: Claims, replica: Replica | None, spool: Spool, caller: Caller
) -> Written | None:
    """Write the frames of a checkpoint, from the file's beginning: a look at the store may have to be begun again."""
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


def _pieces(entries: Iterator[Entry], is_gone: Callable[[], bool]) -> Iterator[list[Entry]]:
    """As many entries at a time as fit into a frame; nobody goes on for a client that has left."""
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
