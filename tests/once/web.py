"""A web service on a real socket, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.harness.server import HOST, free_port
from tests.harness.together import eventually


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The URL of an ASGI application."""
    config = uvicorn.Config(app, host=HOST, port=free_port(), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started, "the service listens")
    try:
        yield f"http://{HOST}:{config.port}"
    finally:
        server.should_exit = True
        thread.join(25)
