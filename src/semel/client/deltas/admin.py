"""`client.deltas_admin`: the gateways of a server, their clients, schemas, rules and logs, for administrators.

Every change is idempotent, so it is retried. Lists are fetched page by page while they are iterated over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode

from semel.client.errors import ConfigurationError
from semel.client.identity import NamedCall
from semel.client.json_answer import Facts, facts_of, value_of
from semel.client.json_text import elements, members
from semel.client.retry import ClientCaller, json_request
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientAnswer, ClientRequest
from semel.kernel.json.fragment import dump

PAGE = 1_000
FORGOTTEN_AT_ONCE = 100
MOST_LOG_BYTES = 32 * 1024 * 1024
READER = "semel-cli"
"""The client id of those who only read a log: it never pushes, so its cursor affects no other client."""
ColumnType = Literal["string", "number", "boolean", "json", "null"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GatewayStats:
    """The size of a gateway."""

    deltas: int
    """Deltas that were pushed."""
    entries: int
    """Entries of the log."""
    rows: int
    """Rows, including deleted ones."""
    pushed_bytes: int
    facts: Facts = field(default_factory=dict, repr=False, compare=False)
    """The whole answer about it."""


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """A client that has pushed to a gateway."""

    key: str
    """The server's key of the client."""
    client_id: str | None
    """None if the id is too long to be listed."""
    last_seen_ms: int | None
    """The hour of its last call, in milliseconds since 1970."""
    facts: Facts
    """The whole answer about it."""


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries of a gateway's log."""

    entries: Sequence[Facts]
    texts: Sequence[str]
    """The entries in the server's own JSON, one line each."""
    cursor: int
    """Where to read on."""
    has_more: bool


class ListPage(NamedTuple, Generic[T]):
    """Items of a list, and where the next page begins; None at the end."""

    items: Sequence[T]
    after: str | None


class PagedList(Generic[T]):
    """Iterator over a list that is fetched page by page."""

    def __init__(
        self, caller: ClientCaller, path: str, read: Callable[[Facts], ListPage[T]], after: str | None
    ) -> None:
        self._caller = caller
        self._path = path
        self._read = read
        self._after = after
        self._ready: deque[T] = deque()
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready and not self._has_ended:
            query: dict[str, object] = {"limit": PAGE} | ({} if self._after is None else {"after": self._after})
            facts = await self._caller.facts(ClientRequest("GET", f"{self._path}?{urlencode(query)}"))
            page = self._caller.understood(lambda: self._read(facts))  # noqa: B023 - called at once
            if page.after is not None and page.after == self._after:
                raise self._caller.transport.not_semel()
            self._ready.extend(page.items)
            self._after, self._has_ended = page.after, page.after is None
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        """End it. No connection is held between pages."""
        self._has_ended = True
        self._ready.clear()


class LogReader:
    """Iterator over the pages of a gateway's log; `cursor` is where it stands."""

    def __init__(
        self, caller: ClientCaller, path: str, since: int, limit: int | None, client_id: str, every: float | None
    ) -> None:
        self._caller = caller
        self._path = path
        self._limit = limit
        self._client_id = client_id
        self._every = every
        self._has_more = True
        self._has_ended = False
        self.cursor = since

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogPage:
        while not self._has_ended:
            if not self._has_more and self._every is not None:
                await self._caller.transport.network.sleep(self._every)
            page = await self._page()
            if page.has_more and page.cursor <= self.cursor:
                raise self._caller.transport.not_semel()
            self.cursor, self._has_more = page.cursor, page.has_more
            self._limit = None if self._limit is None else self._limit - len(page.texts)
            self._has_ended = self._limit == 0 or (not page.has_more and self._every is None)
            if page.texts or self._has_ended:
                return page
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End it. No connection is held between pages."""
        self._has_ended = True

    async def _page(self) -> LogPage:
        limit = PAGE if self._limit is None else min(PAGE, self._limit)
        query = {"since": self.cursor, "clientId": self._client_id, "limit": limit}
        path = f"{self._path}?{urlencode(query, errors='surrogateescape')}"
        answer = await self._caller.call(ClientRequest("GET", path, most_bytes=MOST_LOG_BYTES))
        return self._caller.understood(lambda: _log_page(answer.body))


class AsyncDeltasAdmin:
    """The gateways of one server, from asyncio code. A call without a gateway is about the client's tenant."""

    def __init__(self, caller: ClientCaller, tenant: str | None) -> None:
        self._caller = caller
        self._tenant = tenant

    def gateways(self, *, after: str | None = None) -> PagedList[str]:
        """The names of all gateways."""
        return PagedList(self._caller, "/v1/admin/gateways", _gateway_page, after)

    def clients(self, gateway: str | None = None, *, after: str | None = None) -> PagedList[GatewayClient]:
        """The clients that have pushed to a gateway."""
        return PagedList(self._caller, self._path("clients", gateway), _client_page, after)

    async def forget_clients(self, names: Sequence[str], gateway: str | None = None) -> int:
        """Forget clients; their writes stay. Returns how many were known.

        A client that returns receives everything that it may have missed.
        """
        path, count = self._path("forget-clients", gateway), 0
        for start in range(0, len(names), FORGOTTEN_AT_ONCE):
            body = dump({"clients": list(names[start : start + FORGOTTEN_AT_ONCE])})
            count += await self._post(lambda answer: _number(facts_of(answer.body), "forgotten"), path, body)
        return count

    async def stats(self, gateway: str | None = None) -> GatewayStats:
        """The numbers of rows, deltas and entries of a gateway."""
        facts = await self._caller.facts(ClientRequest("GET", self._path("metrics", gateway)))
        return self._caller.understood(lambda: _stats(facts))

    async def flush(self, gateway: str | None = None) -> None:
        """Return when all writes of a gateway are on disk; acknowledged ones always are."""
        await self._confirmed(self._path("flush", gateway), b"{}", "flushed")

    async def save_schema(self, table: str, columns: Mapping[str, ColumnType], gateway: str | None = None) -> None:
        """Set the columns of a table: later deltas with another column are refused. Columns can only be added."""
        named = [{"name": name, "type": kind} for name, kind in columns.items()]
        await self._confirmed(self._path("schema", gateway), dump({"table": table, "columns": named}), "saved")

    async def save_rules(self, rules: Mapping[str, Any] | bytes, gateway: str | None = None) -> None:
        """Replace the sync rules, which say who sees what; bytes are JSON."""
        body = bytes(rules) if isinstance(rules, bytes) else dump(dict(rules))
        await self._confirmed(self._path("sync-rules", gateway), body, "saved")

    def log(
        self,
        gateway: str | None = None,
        *,
        since: int = 0,
        limit: int | None = None,
        client_id: str = READER,
        every: float | None = None,
    ) -> LogReader:
        """The entries of a gateway after a cursor, in pages: to the end of its log, or at most `limit`.

        With `every` it polls for new ones, each `every` seconds. Do not use the `client_id` of an active replica: the
        server would count these entries as delivered to it.
        """
        path = f"/v1/sync/{quote(self._named(gateway), safe='')}/pull"
        return LogReader(self._caller, path, since, limit, client_id, every)

    def _named(self, gateway: str | None) -> str:
        named = self._tenant if gateway is None else gateway
        if named is None:
            raise ConfigurationError("The call has no gateway: name it, or give the client a tenant (SEMEL_TENANT).")
        return named

    def _path(self, call: str, gateway: str | None) -> str:
        return f"/v1/admin/{call}/{quote(self._named(gateway), safe='')}"

    async def _post(self, make: Callable[[ClientAnswer], T], path: str, body: bytes) -> T:
        return await self._caller.answer_as(make, json_request("POST", path, body), NamedCall("POST", path))

    async def _confirmed(self, path: str, body: bytes, member: str) -> None:
        """Send a change. Raises an error unless a member of the answer confirms it."""

        def check(answer: ClientAnswer) -> None:
            if facts_of(answer.body)[member] is not True:
                raise ValueError(member)

        await self._post(check, path, body)


def _gateway_page(facts: Facts) -> ListPage[str]:
    names = [_text(name) for name in facts["gateways"]]
    return ListPage(names, names[-1] if facts["hasMore"] is True and names else None)


def _client_page(facts: Facts) -> ListPage[GatewayClient]:
    clients = [
        GatewayClient(_text(one["key"]), one.get("clientId"), one.get("lastSeenMs"), one) for one in facts["clients"]
    ]
    return ListPage(clients, _text(facts["next"]) if facts["hasMore"] is True else None)


def _log_page(body: bytes) -> LogPage:
    facts: Any = value_of(body)
    entries, has_more = facts["deltas"], facts["hasMore"]
    texts = list(elements(members(body.decode())["deltas"]))
    if len(texts) != len(entries) or type(has_more) is not bool:
        raise ValueError("not a page")
    return LogPage(entries, texts, int(facts["serverHlc"]), has_more)


def _stats(facts: Facts) -> GatewayStats:
    deltas, entries = _number(facts, "deltaCount"), _number(facts, "logSize")
    return GatewayStats(deltas, entries, _number(facts, "indexSize"), _number(facts, "byteSize"), facts)


def _number(facts: Facts, name: str) -> int:
    value = facts[name]
    if type(value) is not int:
        raise TypeError(name)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


class DeltasAdmin(BlockingCalls[AsyncDeltasAdmin]):
    """The gateways of one server, from synchronous code."""

    gateways = blocking_iterator(AsyncDeltasAdmin.gateways)
    clients = blocking_iterator(AsyncDeltasAdmin.clients)
    forget_clients = blocking(AsyncDeltasAdmin.forget_clients)
    stats = blocking(AsyncDeltasAdmin.stats)
    flush = blocking(AsyncDeltasAdmin.flush)
    save_schema = blocking(AsyncDeltasAdmin.save_schema)
    save_rules = blocking(AsyncDeltasAdmin.save_rules)
    log = blocking_iterator(AsyncDeltasAdmin.log)
