"""The ceiling: the same HTTP host, loop and protocol class, the same answer headers, and nothing behind them."""

from __future__ import annotations

import argparse

import uvicorn

from semel.contracts.streams.offsets import format_offset
from semel.server.asgi import Receive, Scope, Send, respond
from semel.server.process import collect_rarely, host_config
from semel.server.settings import Settings
from semel.server.streams.headers import STATIC

_HEADERS = [(b"stream-next-offset", format_offset(1)), *STATIC, (b"x-request-id", b"000000000000-0")]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, answer 204."""
    await receive()
    await respond(send, 204, _HEADERS, b"")


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    config = host_config(Settings(port=parser.parse_args().port))
    config.app = answer
    collect_rarely()
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
