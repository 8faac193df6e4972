"""`client.server`: the version, readiness, present load, console and diagnosis of the server itself."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semel.client.identity import NamedCall
from semel.client.json_answer import Facts
from semel.client.retry import ClientCaller, json_request
from semel.client.sync_calls import BlockingCalls, blocking
from semel.client.transport.http_transport import ClientAnswer, ClientRequest

MOST_BUNDLE_BYTES = 256 * 1024 * 1024
CONSOLE = "/console"
_CODE = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"diag_bundle_\d{8}_\d{6}\.zip")


class DiagnosisBundle(NamedTuple):
    """A zip file without secrets, for a report of a problem."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ConsoleLink:
    """A one-time link to the console."""

    code: str | None = field(repr=False)
    """What signs a browser in, once, as the caller; None if the server asks for no credential."""
    expires_at: str | None
    """Until when the code can be used, as a text in UTC."""

    def url(self, base: str) -> str:
        """The link, for the URL of the server. The code is in the fragment, which a browser sends to no server."""
        return f"{base}{CONSOLE}" + (f"#code={self.code}" if self.code else "")


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

    async def console_link(self) -> ConsoleLink:
        """A link that signs one browser in to the console, with the rights of this client.

        A call that is repeated makes another link; one that was lost ends by itself.
        """
        path = f"{CONSOLE}/links"
        request = json_request("POST", path, b"{}")
        return await self._caller.facts_as(_link, request, NamedCall("POST", path))

    async def diagnosis(self) -> DiagnosisBundle:
        """A diagnosis bundle; for administrators."""
        answer = await self._caller.call(ClientRequest("GET", "/v1/diagnose", most_bytes=MOST_BUNDLE_BYTES))
        return self._caller.understood(lambda: _bundle(answer))


def _link(facts: Facts) -> ConsoleLink:
    code, expires_at = facts["code"], facts["expires_at"]
    if not (code is None or (isinstance(code, str) and _CODE.fullmatch(code))):
        raise ValueError("not a code")
    return ConsoleLink(code, None if expires_at is None else str(expires_at))


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
    console_link = blocking(AsyncServer.console_link)
    diagnosis = blocking(AsyncServer.diagnosis)
