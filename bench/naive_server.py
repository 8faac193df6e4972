"""The baseline over HTTP: the same host, loop and answer headers, and one transaction a request."""

from __future__ import annotations

import argparse
import asyncio
from hashlib import sha256

from bench.naive import Pool
from bench.noop_server import ANSWER, COMMON, REQUEST_ID, Nothing
from semel.kernel.keys import pack
from semel.server.http.answer import Answer
from semel.server.http.request import Request
from semel.server.listen import listen
from semel.server.process import collect_rarely, make_host, run_on_loop
from semel.server.settings import ServerSettings
from semel.server.settings_loader import make_settings

PREFIX = b"/v1/stream/"


class Naive(Nothing):
    """Every request is taken for a keyed append."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def handle(self, request: Request) -> Answer | None:
        """Answer 204 once it is stored."""
        request.common, request.id = COMMON, REQUEST_ID
        request.later(self._store(request))
        return None

    async def _store(self, request: Request) -> Answer:
        body = request.body
        while not request.is_whole and (piece := await request.exchange.read_piece()):
            body += piece
        key = next(value for name, value in request.headers if name == b"idempotency-key")
        await self._pool.append(request.raw_path[len(PREFIX) :], pack(key), sha256(body).digest(), body)
        return ANSWER


async def serve(settings: ServerSettings, url: str, pool: Pool) -> None:
    """Connect to the database, then serve until the process is ended."""
    await pool.open(url)
    host = make_host(settings, Naive(pool))
    await host.start([listen(settings.host, settings.port, "--port")])
    await asyncio.gather(host.watch())


def main() -> None:
    """Serve on a port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--connections", type=int, required=True, help="to the database")
    parser.add_argument("--block", action="store_true", help="BEGIN, INSERT, COMMIT instead of autocommit")
    asked = parser.parse_args()
    collect_rarely()
    run_on_loop(serve(make_settings(port=asked.port), asked.url, Pool(asked.connections, in_block=asked.block)))


if __name__ == "__main__":
    main()
