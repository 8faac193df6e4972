"""`blocks:watch`: blocks as server-sent events (SSE), each with its height as id, so that a client can resume."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import orjson

from semel.contracts.ledger.model import Header as BlockHeader
from semel.contracts.ledger.reading import tip
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.contracts.ledger.wire.answers import announcement_json
from semel.contracts.ledger.wire.query import parse_watch
from semel.engine.contract import EngineError
from semel.server.http.answer import BodyWriter, ClientGoneError, StreamedAnswer
from semel.server.http.request import Exchange
from semel.server.ledger.desk import Desk
from semel.server.ledger.exchange import Request
from semel.server.ledger.watching import BlockWatch

_log = logging.getLogger("semel.ledger")

PULSE_SECONDS = 15.0
"""Seconds without a block after which a keep-alive comment is sent."""
LAST_WORDS_SECONDS = 2.0
"""Seconds for a slow client to receive the reason before it is disconnected."""
UNSENT_BYTES = 16 * 1024
_PULSE = b":\n\n"
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


class Live:
    """Sends new blocks as server-sent events (SSE)."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def watch(self, request: Request) -> StreamedAnswer:
        """GET; what can be refused is refused before the stream begins."""
        start = parse_watch(request.query, request.fields.get(b"last-event-id"))
        if request.http.version == "1.0":
            raise invalid("An event stream needs HTTP/1.1.", "version")
        await self._desk.look(request.asked, request.place, lambda reading: tip(reading, request.place))
        watch = self._desk.follow(request.asked, request.place, start)
        return StreamedAnswer([*_HEADERS], partial(_follow, watch, request.http.exchange))


async def _follow(watch: BlockWatch, exchange: Exchange, writer: BodyWriter) -> None:
    """Page after page until the client has gone or this side ends it; the last line then says why."""
    exchange.bound_unsent(UNSENT_BYTES)
    why = b""
    with watch:
        try:
            while not watch.is_over:
                found = await watch.next(PULSE_SECONDS)
                if not watch.is_over:
                    await watch.deliver(writer.write(b"".join(map(_event, found)) or _PULSE))
        except (RefusedLedger, EngineError) as ended:
            why = b": %s\n\n" % str(ended).encode("ascii", "replace")
        except (ClientGoneError, ConnectionError, asyncio.CancelledError):
            raise
        except Exception:  # noqa: BLE001 - the answer has begun: the stream ends, and the client comes again
            _log.exception("fault in a stream of blocks")
    if why:
        await _say_why(why, exchange, writer)


async def _say_why(why: bytes, exchange: Exchange, writer: BodyWriter) -> None:
    try:
        async with asyncio.timeout(LAST_WORDS_SECONDS):
            await writer.write(why)
    except TimeoutError:  # it takes nothing any more
        exchange.abort()


def _event(header: BlockHeader) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (header.height, orjson.dumps(announcement_json(header)))
