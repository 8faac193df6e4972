"""A proxy that kills itself (-9) at a named point: python -m tests.proxy.dying POINT PORT UPSTREAM STORE."""

from __future__ import annotations

import os
import signal
import sys

from semel.once import Once
from semel.proxy.app import Proxy
from semel.proxy.process import run_proxy
from semel.proxy.settings import ProxySettings
from tests.harness.server import HOST
from tests.proxy.running import ROUTES

LEASE_SECONDS = 0.5


def main(point: str, port: int, upstream: str, place: str) -> None:
    """Run until the point is reached."""

    def reached(passed: str) -> None:
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = ProxySettings(upstream, ROUTES, lease=LEASE_SECONDS, scope_headers=())
    run_proxy(settings, Proxy(settings, Once(place), reached), (HOST, port), lambda _: None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
