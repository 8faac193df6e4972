"""`semel.Client` and `semel.AsyncClient`: the five surfaces of one server, on one transport and one retry policy.

    with Client("http://127.0.0.1:8788") as client:
        client.streams.append("orders", {"id": 4711}, key="order-4711")

Both have the same calls. `Client` blocks and may be used from several threads, `AsyncClient` from several event loops.
A call is retried with the same identity until it is answered or its deadline passes; then `OutcomeUnknown` has the
identity, and `resolve` asks the server what became of it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from copy import copy
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from semel.client.access import Access, TlsFiles, find_access
from semel.client.call_observer import CallObserver
from semel.client.errors import ConfigurationError, InvalidArgumentError
from semel.client.identity import (
    EventSubmission,
    JobKey,
    LedgerWrite,
    ProducerAppend,
    Resolution,
    StreamAppend,
    WriteIdentity,
)
from semel.client.retry import ClientCaller, OnRetry, Patience
from semel.client.server import AsyncServer, Server
from semel.client.streams.calls import AsyncStreams, BlockingStreams
from semel.client.transport.http_transport import MAX_ANSWER_BYTES, Transport
from semel.client.transport.network import Network, finished
from semel.client.transport.socket_network import BlockingNetwork

if TYPE_CHECKING:  # a program loads only the surfaces that it calls
    from semel.client.deltas.admin import AsyncDeltasAdmin, DeltasAdmin
    from semel.client.deltas.calls import AsyncReplica, Replica
    from semel.client.deltas.values import DeadLetter
    from semel.client.events.calls import AsyncEvents, BlockingEvents
    from semel.client.jobs.calls import AsyncJobs, Jobs
    from semel.client.ledger.calls import AsyncLedger, Ledger
    from semel.client.tokens import AsyncTokens, Tokens
    from semel.client.writes import AsyncWrites, Writes

C = TypeVar("C", bound="AsyncClient | Client")

CONNECTIONS = 100


def _ignore(error: Exception) -> None:
    """Retries are not reported."""


def _tls_of(access: Access) -> ssl.SSLContext:
    return access.tls if isinstance(access.tls, ssl.SSLContext) else (access.tls or TlsFiles()).context()


def _copy_of(client: C) -> C:
    """A copy of a client, without the surfaces that belong to the calls of the first one."""
    other = copy(client)
    for kind in type(client).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, cached_property):
                vars(other).pop(name, None)
    return other


def _opened_replica(client: AsyncClient, path: str | Path, gateway: str | None, **options: Any) -> AsyncReplica:
    from semel.client.deltas.calls import AsyncReplica  # noqa: PLC0415 - loaded when it is used

    named = client.access.tenant if gateway is None else gateway
    if named is None:
        raise ConfigurationError("The replica has no gateway: name it, or give the client a tenant (SEMEL_TENANT).")
    given = {name: value for name, value in options.items() if value is not None}
    return AsyncReplica(client.caller, path, named, token=client.access.token, **given)


class AsyncClient:
    """A client for asyncio code: `async with AsyncClient() as client:`. Each event loop has connections of its own."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        tls: TlsFiles | ssl.SSLContext | None = None,
        result_hmac_key: str | bytes | None = None,
        patience: Patience | None = None,
        connections: int = CONNECTIONS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        on_retry: OnRetry = _ignore,
        telemetry: CallObserver | None = None,
        network: Network | None = None,
    ) -> None:
        """Defaults come from the environment (see `semel.client.access`). `patience` is the retry policy: attempts and
        the deadline of a call; `connections` is the most requests at once, and the most long polls and followers beside
        them; `max_answer_bytes` limits an answer, except those whose largest size is known; `on_retry` is called with
        each error that is retried. `telemetry` watches the calls: `ClientTelemetry()` gives each an OpenTelemetry span.
        `network` replaces the sockets.
        """
        access = find_access(os.environ, url, token, result_hmac_key, tenant, tls)
        context = cache(lambda: _tls_of(access))
        self.access = access
        if network is None:
            from semel.client.transport.asyncio_network import AsyncioNetwork  # noqa: PLC0415 - scripts need no asyncio

            network = AsyncioNetwork(context)
        self.transport = Transport(access, network, connections, max_answer_bytes)
        self.transport.observer = telemetry
        self._call_by(ClientCaller(self.transport, patience or Patience(), on_retry))

    def _call_by(self, caller: ClientCaller) -> None:
        self.caller = caller
        self.server = AsyncServer(caller)
        self.streams = AsyncStreams(caller)

    def with_options(self, *, patience: Patience) -> Self:
        """This client with another retry policy: `client.with_options(patience=Patience(tries=1)).streams.append(...)`.

        Both share their connections and the token: closing one closes the other.
        """
        other = _copy_of(self)
        other._call_by(self.caller.with_patience(patience))
        return other

    @cached_property
    def events(self) -> AsyncEvents:
        """Submit, read and follow events."""
        from semel.client.events.calls import AsyncEvents  # noqa: PLC0415 - loaded when it is used

        return AsyncEvents(self.caller)

    @cached_property
    def jobs(self) -> AsyncJobs:
        """Submit, read and administer jobs."""
        from semel.client.jobs.calls import AsyncJobs  # noqa: PLC0415 - loaded when it is used

        return AsyncJobs(self.caller, self.access.hmac_key)

    @cached_property
    def ledger(self) -> AsyncLedger:
        """Transactions in hash-chained blocks."""
        from semel.client.ledger.calls import AsyncLedger  # noqa: PLC0415 - loaded when it is used

        return AsyncLedger(self.caller, self.access.tenant)

    @cached_property
    def tokens(self) -> AsyncTokens:
        """The tokens in the store of the server, for administrators."""
        from semel.client.tokens import AsyncTokens  # noqa: PLC0415 - loaded when it is used

        return AsyncTokens(self.caller)

    @cached_property
    def writes(self) -> AsyncWrites:
        """Look-ups of writes of all surfaces, by any identity."""
        from semel.client.writes import AsyncWrites  # noqa: PLC0415 - loaded when it is used

        return AsyncWrites(self.caller)

    @classmethod
    def from_env(cls) -> Self:
        """A client of the server that the environment names."""
        return cls()

    @cached_property
    def deltas_admin(self) -> AsyncDeltasAdmin:
        """The gateways of the server, for administrators."""
        from semel.client.deltas.admin import AsyncDeltasAdmin  # noqa: PLC0415 - loaded when it is used

        return AsyncDeltasAdmin(self.caller, self.access.tenant)

    def deltas(
        self,
        path: str | Path,
        gateway: str | None = None,
        client_id: str | None = None,
        *,
        moved: bool = False,
        max_answer_bytes: int | None = None,
        on_dead: Callable[[DeadLetter], None] | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> AsyncReplica:
        """Open a replica in a local file, created if it does not exist. `gateway` is by default the client's tenant.

        `client_id` is the unique name of the replica. Without it, an existing file keeps its name; a new one gets the
        `sub` of the token, the only name that the server accepts with that token, or a random name. `moved` confirms
        that the server has a new address. `max_answer_bytes` limits an answer, 32 MiB by default. `on_dead` is called
        with each dead letter. `wall_ms` replaces the system clock. Close the replica before the client.
        """
        return _opened_replica(
            self,
            path,
            gateway,
            client_id=client_id,
            moved=moved,
            max_answer_bytes=max_answer_bytes,
            on_dead=on_dead,
            wall_ms=wall_ms,
        )

    async def resolve(self, identity: WriteIdentity) -> Resolution:
        """What the server knows of a write, without sending it again."""
        if isinstance(identity, StreamAppend | ProducerAppend):
            return await self.streams.resolve(identity)
        if isinstance(identity, EventSubmission):
            return await self.events.resolve(identity)
        if isinstance(identity, LedgerWrite):
            return await self.ledger.resolve(identity)
        if isinstance(identity, JobKey):
            return await self.jobs.resolve(identity)
        raise InvalidArgumentError("Repeat this call: it has no receipt, and its name makes it repeatable.")

    def use_token(self, token: str) -> None:
        """Use another token from the next call on, for example because the old one expires."""
        self.transport.authorize(find_access({}, self.access.url, token).token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later calls raise."""
        self.transport.end()


class Client:
    """A client for synchronous code: `with Client() as client:`. Several threads may use it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        tls: TlsFiles | ssl.SSLContext | None = None,
        result_hmac_key: str | bytes | None = None,
        patience: Patience | None = None,
        connections: int = CONNECTIONS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        on_retry: OnRetry = _ignore,
        telemetry: CallObserver | None = None,
        network: Network | None = None,
    ) -> None:
        """Defaults come from the environment (see `semel.client.access`). `patience` is the retry policy: attempts and
        the deadline of a call; `connections` is the most requests at once, and the most long polls and followers beside
        them; `max_answer_bytes` limits an answer, except those whose largest size is known; `on_retry` is called with
        each error that is retried. `telemetry` watches the calls: `ClientTelemetry()` gives each an OpenTelemetry span.
        `network` replaces the sockets.
        """
        access = find_access(os.environ, url, token, result_hmac_key, tenant, tls)
        context = cache(lambda: _tls_of(access))
        self._calls = AsyncClient(
            url,
            token=token,
            tenant=tenant,
            tls=tls,
            result_hmac_key=result_hmac_key,
            patience=patience,
            connections=connections,
            max_answer_bytes=max_answer_bytes,
            on_retry=on_retry,
            telemetry=telemetry,
            network=BlockingNetwork(context) if network is None else network,
        )
        self.access = self._calls.access
        self._block_on(self._calls)

    def _block_on(self, calls: AsyncClient) -> None:
        self._calls = calls
        self.caller = calls.caller
        self.server = Server(calls.server)
        self.streams = BlockingStreams(calls.streams)

    def with_options(self, *, patience: Patience) -> Self:
        """This client with another retry policy: `client.with_options(patience=Patience(tries=1)).streams.append(...)`.

        Both share their connections and the token: closing one closes the other.
        """
        other = _copy_of(self)
        other._block_on(self._calls.with_options(patience=patience))
        return other

    @cached_property
    def events(self) -> BlockingEvents:
        """Submit, read and follow events."""
        from semel.client.events.calls import BlockingEvents  # noqa: PLC0415 - loaded when it is used

        return BlockingEvents(self._calls.events)

    @cached_property
    def jobs(self) -> Jobs:
        """Submit, read and administer jobs."""
        from semel.client.jobs.calls import Jobs  # noqa: PLC0415 - loaded when it is used

        return Jobs(self._calls.jobs)

    @cached_property
    def ledger(self) -> Ledger:
        """Transactions in hash-chained blocks."""
        from semel.client.ledger.calls import Ledger  # noqa: PLC0415 - loaded when it is used

        return Ledger(self._calls.ledger)

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens in the store of the server, for administrators."""
        from semel.client.tokens import Tokens  # noqa: PLC0415 - loaded when it is used

        return Tokens(self._calls.tokens)

    @cached_property
    def writes(self) -> Writes:
        """Look-ups of writes of all surfaces, by any identity."""
        from semel.client.writes import Writes  # noqa: PLC0415 - loaded when it is used

        return Writes(self._calls.writes)

    @classmethod
    def from_env(cls) -> Self:
        """A client of the server that the environment names."""
        return cls()

    @cached_property
    def deltas_admin(self) -> DeltasAdmin:
        """The gateways of the server, for administrators."""
        from semel.client.deltas.admin import DeltasAdmin  # noqa: PLC0415 - loaded when it is used

        return DeltasAdmin(self._calls.deltas_admin)

    def deltas(
        self,
        path: str | Path,
        gateway: str | None = None,
        client_id: str | None = None,
        *,
        moved: bool = False,
        max_answer_bytes: int | None = None,
        on_dead: Callable[[DeadLetter], None] | None = None,
        wall_ms: Callable[[], int] | None = None,
    ) -> Replica:
        """Open a replica in a local file, created if it does not exist. `gateway` is by default the client's tenant.

        `client_id` is the unique name of the replica. Without it, an existing file keeps its name; a new one gets the
        `sub` of the token, the only name that the server accepts with that token, or a random name. `moved` confirms
        that the server has a new address. `max_answer_bytes` limits an answer, 32 MiB by default. `on_dead` is called
        with each dead letter. `wall_ms` replaces the system clock. Close the replica before the client.
        """
        from semel.client.deltas.calls import Replica  # noqa: PLC0415 - loaded when it is used

        return Replica(
            _opened_replica(
                self._calls,
                path,
                gateway,
                client_id=client_id,
                moved=moved,
                max_answer_bytes=max_answer_bytes,
                on_dead=on_dead,
                wall_ms=wall_ms,
            )
        )

    def resolve(self, identity: WriteIdentity) -> Resolution:
        """What the server knows of a write, without sending it again."""
        return finished(self._calls.resolve(identity))

    def use_token(self, token: str) -> None:
        """Use another token from the next call on, for example because the old one expires."""
        self._calls.use_token(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; later calls raise."""
        finished(self._calls.close())
