"""The ceiling: the same HTTP host and loop, the same answer headers, and nothing behind them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable

from semel.kernel.errors import Refusal
from semel.server.http.answer import SECURITY, Answer, header_block
from semel.server.http.application import UpgradedConnection
from semel.server.http.request import Request
from semel.server.listen import listen
from semel.server.process import collect_rarely, make_host, run_on_loop
from semel.server.settings import ServerSettings
from semel.server.settings_loader import make_settings
from semel.surfaces.streams.rules.offsets import format_offset

REQUEST_ID = b"000000000000-0"
COMMON = header_block(SECURITY)
ANSWER = Answer(204, [(b"stream-next-offset", format_offset(1))])


class Nothing:
    """Answers everything alike, as an append is answered."""

    def handle(self, request: Request) -> Answer | None:
        """Answer 204, once the body has arrived."""
        request.common = COMMON
        request.id = REQUEST_ID
        if request.is_whole:
            return ANSWER
        request.later(self._read(request))
        return None

    async def _read(self, request: Request) -> Answer:
        while await request.exchange.read_piece():
            pass
        return ANSWER

    def failed(self, request: Request, error: Exception) -> Answer:
        """Say so."""
        return Answer(500, [])

    def answered(self, request: Request, status: int) -> None:
        """Nothing is counted."""

    def refused(self, refusal: Refusal) -> None:
        """Nothing is counted."""

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """There is no WebSocket."""
        return None

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """There is one listener."""
        return False


async def serve(settings: ServerSettings) -> None:
    """Serve until the process is ended."""
    host = make_host(settings, Nothing())
    await host.start([listen(settings.host, settings.port, "--port")])
    await asyncio.gather(host.watch())


def main() -> None:
    """Serve on a port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    settings = make_settings(port=parser.parse_args().port)
    collect_rarely()
    run_on_loop(serve(settings))


if __name__ == "__main__":
    main()
