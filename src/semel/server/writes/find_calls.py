"""The look-up of writes over HTTP: `GET /v1/writes/{id}`, and `POST /v1/writes/find` for ids that belong in no URL.

Every known caller may ask; what it may not read is left out, with the same answer as for an unknown id. The look-up
runs in a reader's thread, a few at a time. No log line has the id: paths below `/v1/writes/` are logged as a template.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.auth.authentication import admit
from semel.server.context import Context
from semel.server.http.answer import CLOSE, JSON, NO_STORE, SECURITY, Answer, header_block
from semel.server.http.request import WRITES_PATH, Request
from semel.server.surface import HttpSurface
from semel.server.thread_pool import APART_BYTES, apart
from semel.server.writes.find_wire import AskedWrite, SeenRetries, lives_body, parse_find, parse_path
from semel.server.writes.lookup import (
    MAX_PROBES,
    MAX_SECONDS,
    FindWrites,
    FoundWrites,
    ProbeBudget,
    WriteQuery,
    find_writes,
)
from semel.server.writes.retry_table import RETRY, RetryRow, joined, retries_since, stored_retries
from semel.store.table import Key

FIND = WRITES_PATH + b"find"
ROUTES = {"{}": ("GET", "HEAD"), "find": ("POST",)}
"""The methods of each path below `WRITES_PATH`; `{}` is an identity. The identity `find` is asked for by POST."""
MAX_BODY_BYTES = 64 * 1024
MAX_AT_ONCE = 2
"""Look-ups that run at a time: each holds a reader of the store."""
MAX_WAITING = 64
"""Look-ups that wait; further ones are refused."""
_COMMON = header_block(SECURITY)


class WriteCalls(HttpSurface):
    """The HTTP handlers of look-ups of writes."""

    surface = "writes"
    allow = b"GET, HEAD, POST, OPTIONS"

    def __init__(self, context: Context, finders: Sequence[FindWrites]) -> None:
        self._context = context
        self._finders = finders
        self._running = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting = 0

    def owns(self, raw_path: bytes) -> bool:
        """Whether a path belongs to these calls."""
        return raw_path.startswith(WRITES_PATH)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request, in a task."""
        request.later(self._run(request))
        return None

    async def _run(self, request: Request) -> Answer:
        raw_id = request.raw_path[len(WRITES_PATH) :]
        if not raw_id:
            raise Refused("NOT_FOUND", "There is nothing at this path; a write is at /v1/writes/ID.")
        allowed = ROUTES["find" if request.raw_path == FIND else "{}"]
        if request.method not in allowed:
            headers = ((b"allow", ", ".join(allowed).encode()),)
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=headers)
        principal = admit(self._context, request)
        is_post = request.method == "POST"
        asked = await self._posted(request) if is_post else parse_path(raw_id, request.query)
        query = WriteQuery(asked.id, asked.place, principal, self._context.principals.are_known)
        found, stored = await self._found(query)
        retries = self._retries(found, stored)
        body = await apart(APART_BYTES + 1 if found.writes else 0, lives_body, asked, found, retries)
        return Answer(200, [JSON, NO_STORE], body)

    def _retries(self, found: FoundWrites, stored: Mapping[Key, RetryRow]) -> dict[int, SeenRetries]:
        """The retries of each match: those that are stored, and those of this node that are not yet."""
        seen: dict[int, SeenRetries] = {}
        for place, one in enumerate(found.writes):
            if one.retry_key is None:
                continue
            row = stored.get((one.surface.encode(), one.retry_key))
            waiting = self._context.retries.unsaved((one.surface, one.retry_key))
            counted = waiting if row is None else stored_retries(row)
            if row is not None and counted is not None and waiting is not None:
                counted = joined(counted, waiting)
            if counted is not None:
                seen[place] = retries_since(counted, one.at)
        return seen

    async def _posted(self, request: Request) -> AskedWrite:
        body = await self._context.bodies.read(request)
        if body is None or len(body) > MAX_BODY_BYTES:
            detail = f"The body has more than {MAX_BODY_BYTES} bytes; send a smaller one."
            raise Refused("PAYLOAD_TOO_LARGE", detail, headers=(CLOSE,))
        return await apart(len(body), parse_find, body)

    async def _found(self, query: WriteQuery) -> tuple[FoundWrites, Mapping[Key, RetryRow]]:
        if self._waiting >= MAX_WAITING:
            raise Refused("OVERLOADED", "Too many look-ups of writes are under way; try again in a moment.")
        self._waiting += 1
        try:
            async with self._running:
                return await self._context.engine.read(partial(self._look, query))
        finally:
            self._waiting -= 1

    def _look(self, query: WriteQuery, reading: Reading) -> tuple[FoundWrites, Mapping[Key, RetryRow]]:
        budget = ProbeBudget(MAX_PROBES, monotonic() + MAX_SECONDS, monotonic)
        found = find_writes(reading, query, self._finders, budget)
        keys = [(one.surface.encode(), one.retry_key) for one in found.writes if one.retry_key is not None]
        return found, reading.find(RETRY, keys) if keys else {}
