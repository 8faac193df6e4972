"""The baseline over HTTP: the same host, loop, protocol class and answer headers, and one transaction a request."""

from __future__ import annotations

import argparse
from hashlib import sha256

import uvicorn

from bench.naive import Pool
from semel.contracts.streams.offsets import format_offset
from semel.kernel.keys import pack
from semel.server.asgi import Receive, Scope, Send, respond
from semel.server.process import collect_rarely, host_config
from semel.server.settings import Settings
from semel.server.streams.headers import STATIC
from semel.server.streams.host import PREFIX

_HEADERS = [(b"stream-next-offset", format_offset(1)), *STATIC, (b"x-request-id", b"000000000000-0")]


class App:
    """Every request is taken for a keyed append."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, store it, answer 204."""
        message = await receive()
        body: bytes = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        key = next(value for name, value in scope["headers"] if name == b"idempotency-key")
        await self._pool.append(scope["raw_path"][len(PREFIX) :], pack(key), sha256(body).digest(), body)
        await respond(send, 204, _HEADERS, b"")


class _Server(uvicorn.Server):
    """Connects to the database before it listens."""

    def __init__(self, config: uvicorn.Config, url: str, pool: Pool) -> None:
        super().__init__(config)
        self._url = url
        self._pool = pool

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """The pool lives on the loop, so it is opened here."""
        await self._pool.open(self._url)
        self.config.loaded_app = App(self._pool)
        await super().startup()

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """The last requests are answered before the pool goes."""
        await super().shutdown()
        await self._pool.close()


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--connections", type=int, required=True, help="to the database")
    parser.add_argument("--block", action="store_true", help="BEGIN, INSERT, COMMIT instead of autocommit")
    asked = parser.parse_args()
    collect_rarely()
    _Server(host_config(Settings(port=asked.port)), asked.url, Pool(asked.connections, in_block=asked.block)).run()


if __name__ == "__main__":
    main()
