"""Requests to the jobs surface: paths, and the calls that every group of calls needs.

A write of jobs has an identity of its own (a key, a claim id, a lease token or a name), so every request is repeated
until it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from semel.client.call_observer import CallObserver
from semel.client.errors import CallError, InvalidArgumentError, NotFoundError
from semel.client.identity import NamedCall
from semel.client.jobs.answers import confirmed
from semel.client.json_answer import Facts, facts_of
from semel.client.retry import ClientCaller, json_request
from semel.client.transport.http_transport import ClientRequest

T = TypeVar("T")
PATH = "/v1/jobs"
MOST_WAIT_SECONDS = 30.0
"""Longest long poll of the server, in seconds."""


def job_path(job_id: str, call: str = "") -> str:
    """The path of a job, or of a call on it."""
    return f"{PATH}/{_quoted(job_id)}" + (f"/{call}" if call else "")


def queue_path(name: str) -> str:
    """The path of a queue."""
    return f"{PATH}/queues/{_quoted(name)}"


def schedule_path(name: str) -> str:
    """The path of a schedule."""
    return f"{PATH}/schedules/{_quoted(name)}"


def _quoted(name: str) -> str:
    if not name or name in (".", ".."):
        raise InvalidArgumentError("A name in a path must not be empty, . or ..")
    try:
        return quote(name, safe="", errors="surrogateescape")
    except UnicodeEncodeError:
        raise InvalidArgumentError("A name must be valid Unicode.") from None


def queried(path: str, fields: Mapping[str, Any]) -> str:
    """A path with the query fields that are not None."""
    given = {name: value for name, value in fields.items() if value is not None}
    return f"{path}?{urlencode(given, errors='surrogateescape')}" if given else path


class JobRequests:
    """Sends requests of the jobs surface, with retries."""

    def __init__(self, caller: ClientCaller, hmac_key: bytes | None = None) -> None:
        """`hmac_key` signs results and verifies their signatures."""
        self._caller = caller
        self._hmac_key = hmac_key

    @property
    def observer(self) -> CallObserver | None:
        """Watches the calls, such as telemetry."""
        return self._caller.transport.observer

    @property
    def _carried(self) -> Mapping[str, str] | None:
        """The trace of the present code, for the worker of a job."""
        return None if self.observer is None else self.observer.carried()

    async def _get(self, make: Callable[[Facts], T], path: str, *, wait: float = 0.0) -> T:
        return await self._caller.facts_as(make, ClientRequest("GET", path, wait=wait))

    async def _post(
        self, make: Callable[[Facts], T], path: str, body: bytes, *, wait: float = 0.0, most_bytes: int = 0
    ) -> T:
        request = json_request("POST", path, body, wait=wait, most_bytes=most_bytes)
        return await self._caller.facts_as(make, request, NamedCall("POST", path))

    async def _put(self, make: Callable[[Facts], T], path: str, body: bytes) -> T:
        return await self._caller.facts_as(make, json_request("PUT", path, body), NamedCall("PUT", path))

    async def _ask(self, path: str, body: bytes) -> Facts:
        """A POST that only reads."""

        async def once(answer_seconds: float) -> Facts:
            answer = await self._caller.transport.request(json_request("POST", path, body), answer_seconds)
            checked = self._caller.checked(answer)
            return self._caller.understood(lambda: facts_of(checked.body))

        return await self._caller.insist(once, lambda error: None)

    async def _forget(self, request: ClientRequest) -> None:
        """A request that ends something. After a lost answer, "not found" means that an earlier attempt ended it."""
        is_repeated = False

        def again(error: CallError) -> ClientRequest:
            nonlocal is_repeated
            is_repeated = is_repeated or error.is_unsettled
            return request

        try:
            await self._caller.facts_as(confirmed, request, NamedCall(request.method, request.path), again)
        except NotFoundError:
            if not is_repeated:
                raise
