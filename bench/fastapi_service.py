"""What most people would write: FastAPI on uvicorn, a pool of psycopg, and one INSERT ... ON CONFLICT a request.

`uvicorn bench.fastapi_service:app`, with the URL of the database in DATABASE_URL; `make bench` runs it in the peers'
environment. The pool commits at the end of its block, so an append is on disk before it is answered.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header, Request, Response
from psycopg_pool import AsyncConnectionPool

POOL = 8
TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream text NOT NULL, key text NOT NULL, body jsonb NOT NULL, UNIQUE (stream, key)
)
"""
INSERT = "INSERT INTO entries (stream, key, body) VALUES (%s, %s, %s) ON CONFLICT (stream, key) DO NOTHING RETURNING id"


def make_app() -> FastAPI:
    """The service."""
    pool = AsyncConnectionPool(os.environ.get("DATABASE_URL", ""), min_size=POOL, max_size=POOL, open=False)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await pool.open(wait=True)
        async with pool.connection() as connection:
            await connection.execute(TABLE)
        yield
        await pool.close()

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/stream/{name}")
    async def append(name: str, request: Request, idempotency_key: Annotated[str, Header()]) -> Response:
        body = (await request.body()).decode()
        async with pool.connection() as connection:
            cursor = await connection.execute(INSERT, (name, idempotency_key, body))
            is_new = await cursor.fetchone() is not None
        return Response(status_code=201 if is_new else 200)

    return app


app = make_app()
