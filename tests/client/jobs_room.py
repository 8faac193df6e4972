"""The jobs of a server for tests: of an asynchronous client, or of a blocking one behind coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from semel.client.jobs.calls import AsyncJobs
from tests.client.both import client_of

OpenJobs = Callable[..., AbstractAsyncContextManager[AsyncJobs]]


@asynccontextmanager
async def open_jobs(url: str | None = None, *, kind: str = "async", **options: Any) -> AsyncIterator[AsyncJobs]:
    """The jobs of a client."""
    async with client_of(kind, url, **options) as client:
        yield client.jobs
