"""The server context: the engine, clocks, settings and principals that all surfaces share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from semel.engine.caller import WaitingCaller
from semel.engine.engine import Engine
from semel.engine.follow import FollowEnd, WakeSource
from semel.kernel.clock import World
from semel.kernel.namespace import DEFAULT
from semel.server.auth.principals import Principal, Principals
from semel.server.auth.stored_tokens import StoredTokens
from semel.server.http.body import Bodies
from semel.server.http.connection_limit import ConnectionLimit
from semel.server.http.request import Request
from semel.server.http.tls import Tls
from semel.server.ops.access_log import AccessLog
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.health_watch import HealthWatch
from semel.server.ops.log_facts import is_valid_id
from semel.server.ops.meter import Meter
from semel.server.ops.metrics import Metrics
from semel.server.ops.traces import ServerTracing
from semel.server.quotas.accounts import NO_SEAT, Quotas, ReaderSeat
from semel.server.setting_values import GivenValue
from semel.server.settings import ServerSettings
from semel.server.writes.retry_log import RetryLog

NAMESPACE_PATHS = b"/ns/"
"""The paths of all namespaces but the default one are below this."""


def prefix_of(namespace: str) -> bytes:
    """What precedes the paths of a namespace in URLs; empty for the default one."""
    return b"" if namespace == DEFAULT else NAMESPACE_PATHS + namespace.encode()


@dataclass(slots=True)
class Context:
    """The shared dependencies of all surfaces of one namespace; created once at start."""

    settings: ServerSettings
    engine: Engine
    world: World
    principals: Principals
    stored_tokens: StoredTokens
    metrics: Metrics
    meter: Meter
    audit: AuditLog
    bodies: Bodies
    quotas: Quotas
    retries: RetryLog
    """Notes retries that are answered from a receipt."""
    connection_limit: ConnectionLimit = field(default_factory=lambda: ConnectionLimit(most=1_000_000, per_address=0))
    """Shared by all listeners."""
    tls: Tls | None = None
    """The certificate of all listeners; None without TLS."""
    health: HealthWatch | None = None
    """Watches disk, clocks and standbys for `/readyz`."""
    tracing: ServerTracing | None = None
    """Makes the spans of traced calls; None if tracing is off."""
    namespace: str = DEFAULT
    others: Sequence[Context] = ()
    """The contexts of the other namespaces of the process; empty in these."""
    access: AccessLog | None = None
    """Logs requests; None if both logs are off."""
    given_settings: Callable[[], Mapping[str, GivenValue]] = dict
    """The settings that were given, with their places; for `/v1/settings`."""
    is_stopping: bool = False
    request_ids: Iterator[bytes] = field(init=False)
    """New request ids: six random bytes for this process, and a number."""

    prefix: bytes = field(init=False)
    """What precedes the paths of this namespace in URLs; empty for the default one."""

    def __post_init__(self) -> None:
        self.prefix = prefix_of(self.namespace)
        form = self.world.random_bytes(6).hex().encode() + b"-%x"
        self.request_ids = map(form.__mod__, count())

    @property
    def all(self) -> Sequence[Context]:
        """This context and those of the other namespaces."""
        return (self, *self.others)

    @property
    def has_neighbours(self) -> bool:
        """Whether the process serves other namespaces, too."""
        return bool(self.others) or self.namespace != DEFAULT

    def request_id(self, given: bytes | None = None) -> bytes:
        """The request id that the client sent, if it is valid; otherwise a new one."""
        if given is not None and is_valid_id(given):
            return given
        return next(self.request_ids)

    def end_of(self, caller: WaitingCaller, principal: Principal | None) -> FollowEnd:
        """The conditions that end a follower of this request: disconnect, end of the credential, stop of the server."""
        sources: tuple[WakeSource, ...] = (caller,)
        if principal is None:
            return FollowEnd(lambda: caller.gone, lambda: self.is_stopping, sources=sources)
        if principal.revocation is not None:
            sources = (caller, principal.revocation)
        return FollowEnd(
            is_gone=lambda: caller.gone,
            is_stopping=lambda: self.is_stopping,
            credential_seconds=lambda: principal.seconds_left(self.world.wall_ms()),
            sources=sources,
        )

    def live_reader(self, actor: str) -> ReaderSeat:
        """A place for one more live reader of a principal, until it is closed; `QuotaExceededError` if it has too many.

        `actor` is empty for a caller without a credential, which has no limit.
        """
        return self.quotas.seat(actor) if self.quotas.is_on and actor else NO_SEAT


def caller_of(request: Request) -> WaitingCaller:
    """The caller that waits for the answer, with the principal whose share of the queue it takes; left when the client
    disconnects.
    """
    caller = WaitingCaller(request.principal)
    request.on_gone = caller.leave
    caller.gone = request.gone
    caller.origin = request
    return caller
