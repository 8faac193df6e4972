"""Open many event-stream readers on one stream and hold them until standard input closes.

Prints `open N` when every one of them has got its first control event, and `woken N` each time all of them have got one
more piece of content.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
from typing import cast


class Reader(asyncio.Protocol):
    """One event stream, of which only the number of data events is kept."""

    def __init__(self, request: bytes, crowd: Crowd) -> None:
        self._request = request
        self._crowd = crowd
        self._is_ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count."""
        if not self._is_ready and b"event: control" in data:
            self._is_ready = True
            self._crowd.arrived()
        self._crowd.events += data.count(b"event: data")


class Crowd:
    """What all readers have seen together."""

    def __init__(self, count: int) -> None:
        self.ready = 0
        self.events = 0
        self.is_complete = asyncio.Event()
        self._count = count

    def arrived(self) -> None:
        """One more has got its first event."""
        self.ready += 1
        if self.ready == self._count:
            self.is_complete.set()


async def hold(port: int, path: str, count: int) -> None:
    """Open them, a hundred at a time, and wait."""
    loop = asyncio.get_running_loop()
    crowd = Crowd(count)
    request = f"GET {path}?live=sse&offset=now HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    for at in range(0, count, 100):
        await asyncio.gather(
            *(
                loop.create_connection(lambda: Reader(request, crowd), "127.0.0.1", port)
                for _ in range(min(100, count - at))
            )
        )
    await crowd.is_complete.wait()
    print(f"open {crowd.ready}", flush=True)
    stop = loop.run_in_executor(None, sys.stdin.read)
    woken = 0
    while not stop.done():
        await asyncio.sleep(0.02)
        if crowd.events >= count * (woken + 1):
            woken += 1
            print(f"woken {crowd.events}", flush=True)


def main() -> None:
    """Hold readers until standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--readers", type=int, required=True)
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(hold(asked.port, asked.path, asked.readers))


if __name__ == "__main__":
    main()
