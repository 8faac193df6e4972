"""A shop whose framework commits behind its answer, and which dies where it is told to.

    python -m tests.once.joined_service SERVER PORT DATABASE RECEIPTS SCOPE

`SCOPE` is that of FastAPI's dependency. `X-Die` names where the process kills itself, and `X-Fail` makes COMMIT fail.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI, Request
from fastapi.responses import FileResponse, StreamingResponse
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from semel import once
from semel.once import Once

DATABASE, RECEIPTS, SCOPE = (os.environ.get(f"SHOP_{name}", "") for name in ("DATABASE", "RECEIPTS", "SCOPE"))
POINTS = ("begun", "behind the answer", "committed", "background")
CONTENT = b"a file" * 1_000
app = FastAPI()


def die_at(here: str, request: Request) -> None:
    """As a power cut would."""
    if request.headers.get("x-die") == here:
        os.kill(os.getpid(), signal.SIGKILL)


def open_session(request: Request) -> Iterator[Session]:
    """A session that commits when the handler has returned."""
    with Session(engine) as session:
        yield session
        die_at("behind the answer", request)
        session.commit()
        die_at("committed", request)


@app.get("/")
def root() -> str:
    """Say that the server is there."""
    return "here"


if DATABASE:
    engine = create_engine(DATABASE)
    store = Once(RECEIPTS)
    app.add_middleware(once.Middleware, store=store, scope=None, lease="0.5s", wait="20s")
    begun = Depends(open_session, scope=SCOPE)  # type: ignore[arg-type] # it is one of both

    @app.post("/orders", status_code=201)
    def order(
        request: Request, later: BackgroundTasks, session: Annotated[Session, begun], name: str
    ) -> dict[str, object]:
        """Place an order."""
        with once.transaction(session) as attempt:
            if attempt.fresh:
                die_at("begun", request)
                for _ in range(2 if "x-fail" in request.headers else 1):  # a name is unique, by the time of COMMIT
                    session.execute(text("INSERT INTO orders VALUES (:name)"), {"name": name})
                attempt.result = {"order": name, "process": os.getpid()}
        later.add_task(die_at, "background", request)
        result: dict[str, object] = attempt.result
        return result

    @app.post("/file")
    def file() -> FileResponse:
        """Answer with a file, which a server may send by its path."""
        Path(RECEIPTS + ".file").write_bytes(CONTENT)
        return FileResponse(RECEIPTS + ".file", filename="receipt.bin")

    @app.post("/events")
    async def events(request: Request) -> StreamingResponse:
        """A stream that ends when its client has gone."""

        async def lines() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            while not await request.is_disconnected():
                pass

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.post("/joined-events")
    def joined_events(session: Annotated[Session, begun]) -> StreamingResponse:
        """Streams while its transaction is open."""
        with once.transaction(session) as attempt:
            attempt.result = 1
        return StreamingResponse(iter([b"data: 1\n\n"]), media_type="text/event-stream")


def main() -> None:
    """Serve until killed."""
    server, port, *values = sys.argv[1:]
    for name, value in zip(("DATABASE", "RECEIPTS", "SCOPE"), values, strict=True):
        os.environ[f"SHOP_{name}"] = value
    target: Any = "tests.once.joined_service:app"
    if server == "granian":
        from granian import Granian  # noqa: PLC0415 - one of two servers
        from granian.constants import Interfaces  # noqa: PLC0415

        Granian(target, "127.0.0.1", int(port), interface=Interfaces.ASGI, log_enabled=False).serve()
    else:
        import uvicorn  # noqa: PLC0415

        uvicorn.run(target, host="127.0.0.1", port=int(port), log_level="critical")


if __name__ == "__main__":
    main()
