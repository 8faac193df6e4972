"""`client.server`: the version, readiness, present load and diagnosis of the server itself."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.retry import ClientCaller
from semel.client.sync_calls import BlockingCalls, blocking
from semel.client.transport.http_transport import ClientAnswer, ClientRequest

MOST_BUNDLE_BYTES = 256 * 1024 * 1024
_NAME = re.compile(r"diag_bundle_\d{8}_\d{6}\.zip")


class DiagnosisBundle(NamedTuple):
    """A zip file without secrets, for a report of a problem."""

    name: str
    content: bytes


class AsyncServer:
    """The server itself, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    async def version(self) -> str:
        """The version of a server that answers."""
        facts = await self._caller.facts(ClientRequest("GET", "/livez"))
        return self._caller.understood(lambda: str(facts["version"]))

    async def ready(self) -> None:
        """Return if a write sent now would be taken; else raise the server's refusal."""
        await self._caller.call(ClientRequest("GET", "/readyz"))

    async def live(self) -> Mapping[str, Any]:
        """What the server does right now: counts since its start, commit times, the queue."""
        return await self._caller.facts(ClientRequest("GET", "/v1/live"))

    async def metrics(self) -> dict[str, float]:
        """The metrics of the server by name; one that has no value now is left out."""
        facts = await self._caller.facts(ClientRequest("GET", "/metrics"))
        return {name: float(value) for name, value in facts.items() if isinstance(value, int | float)}

    async def diagnosis(self) -> DiagnosisBundle:
        """A diagnosis bundle; for administrators."""
        answer = await self._caller.call(ClientRequest("GET", "/v1/diagnose", most_bytes=MOST_BUNDLE_BYTES))
        return self._caller.understood(lambda: _bundle(answer))


def _bundle(answer: ClientAnswer) -> DiagnosisBundle:
    found = _NAME.search(answer.headers.get("content-disposition", ""))
    if found is None or not zipfile.is_zipfile(io.BytesIO(answer.body)):
        raise ValueError("not a bundle")
    return DiagnosisBundle(found[0], answer.body)


class Server(BlockingCalls[AsyncServer]):
    """The server itself, from synchronous code."""

    version = blocking(AsyncServer.version)
    ready = blocking(AsyncServer.ready)
    live = blocking(AsyncServer.live)
    metrics = blocking(AsyncServer.metrics)
    diagnosis = blocking(AsyncServer.diagnosis)
