"""The interface between a surface and the server: a row of the registry, and the object that runs.

The shell handles what is the same for all surfaces: request ids, allowed web origins, OPTIONS, the two listeners, the
audit line of a denial, the count of answers, and the error id of a fault.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from prometheus_client.core import Metric

from semel.engine.contract import Contract, EngineError
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.principals import ScopeClaim
from semel.server.context import Context
from semel.server.http.answer import Answer
from semel.server.http.application import UpgradedConnection
from semel.server.http.problem import engine_refusal, internal_refusal, problem_answer
from semel.server.http.request import Request
from semel.server.openapi.operation import HttpOperation
from semel.server.ops.diagnosis_bundle import SurfaceDiagnosis
from semel.server.ops.surface_outlook import SurfaceOutlook
from semel.server.settings import ServerSettings, SurfaceSettings
from semel.server.writes.lookup import FindWrites
from semel.store.protocol import AnyTable
from semel.store.table_check import Check


class ExtraListener(Protocol):
    """A port of a surface besides the HTTP listeners."""

    async def start(self) -> None:
        """Listen. Raises `ListenError` if the configured port is not available."""

    async def stop(self, seconds: float) -> None:
        """Wait at most this many seconds for open calls to end, then close."""


class HttpSurface(ABC):
    """The owner of some paths over HTTP. Used on the event loop only."""

    surface: ClassVar[str]
    """Its name in metrics, scopes and settings."""
    allow: ClassVar[bytes]
    """The methods in use under its paths, as `OPTIONS` names them."""
    audits_denials: ClassVar[bool] = False
    """Whether the service of the surface writes the audit line of a denial, for all wires; otherwise the shell does."""

    @abstractmethod
    def common(self, request: Request) -> bytes:
        """Header lines of every answer to the request, rendered."""

    @abstractmethod
    def handle(self, request: Request) -> Answer | None:
        """The answer; None if it is sent later. May raise an error that `refuse` answers."""

    def refuse(self, request: Request, error: Exception) -> Answer | None:
        """The answer to an error that is a refusal; None for an internal fault."""
        if isinstance(error, Refused):
            return self.render(request, error.refusal)
        return self.render(request, self.failure(error)) if isinstance(error, EngineError) else None

    def render(self, request: Request, refusal: Refusal) -> Answer:
        """Render a refusal of the surface, or of the server itself. The default is a problem document."""
        return problem_answer(refusal)

    def failure(self, error: EngineError) -> Refusal:
        """The refusal for an engine error."""
        return engine_refusal(error)

    def fault(self, error_id: str) -> Refusal:
        """The refusal for an internal fault; the log has the details under `error_id`."""
        return internal_refusal(error_id)

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The factory of WebSocket connections at a path; None if the path has none."""
        return None


class RunningSurface(HttpSurface):
    """A surface of a running server."""

    contract: Contract
    """The contract of the surface; the sweeper runs its chores."""

    async def start(self) -> None:
        """Called once before the first request."""

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Background tasks that run until the server stops."""
        return ()

    def listeners(self, others: Mapping[str, RunningSurface]) -> Iterable[ExtraListener]:
        """Ports besides the HTTP listeners; asked of the default namespace only.

        They also serve the same surface in the other namespaces of the process, which `others` has by name.
        """
        return ()

    def stop(self) -> None:
        """The server is stopping: end live readers and long polls."""

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt, since the start."""
        return 0

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged writes by verdict, since the start; from memory."""
        return {}

    def collect(self) -> Iterator[Metric]:
        """The metric families of the surface."""
        return iter(())

    async def measure(self) -> None:
        """Read gauges from the store; called right before the metrics are collected."""

    def named(self) -> Mapping[str, float | None]:
        """Further named values of the surface in the JSON form of `/metrics`."""
        return {}


@dataclass(frozen=True)
class Surface:
    """A row of the registry."""

    name: str
    about: str
    """One line, for the banner and the documentation."""
    paths: tuple[bytes, ...]
    """Paths that belong to the surface."""
    prefixes: tuple[bytes, ...]
    """Prefixes of further paths that belong to the surface."""
    tables: tuple[AnyTable, ...]
    settings: type[SurfaceSettings]
    run: Callable[[Context], RunningSurface]
    """Makes the object that runs."""
    operations: tuple[HttpOperation, ...]
    """Every method and path of the surface, for the OpenAPI document."""
    outlook: Callable[[Reading, ServerSettings], SurfaceOutlook] | None = None
    """Reads what `semel doctor` says of the surface; None for nothing."""
    windows: Callable[[ServerSettings], Mapping[AnyTable, int]] = lambda settings: {}
    """Tables whose rows expire by age, in generations, and the age in milliseconds."""
    check: Callable[[ServerSettings], None] = lambda settings: None
    """Raises `SettingsError` for an invalid setting; called before the store is opened."""
    store_checks: Sequence[Check] = ()
    """Yield what is wrong with the rows of the surface; for `semel check`."""
    diagnose: Callable[[Reading], SurfaceDiagnosis] | None = None
    """Reads the surface's part of a diagnosis; None if there is no such part."""
    has_credentials: Callable[[ServerSettings], bool] = lambda settings: False
    """Whether the surface has its own credentials, which the rest of the server does not accept."""
    scope_claims: Sequence[ScopeClaim] = ()
    """JWT claims that limit the scope of a token on this surface."""
    has_normalized_names: bool = False
    """Whether names in scopes are compared in Unicode normalization form NFC."""
    route_words: frozenset[bytes] = frozenset()
    """Segments of its paths that are no names, for traces."""
    receipts: tuple[AnyTable, ...] = ()
    """Tables whose rows remember writes; each is a log table."""
    find: FindWrites | None = None
    """Finds writes of the surface by their identities; None if it has none to find."""
    verdict_of: Callable[[Any], Verdict | None] = lambda answer: None
    """The verdict that an answer of the engine tells, for traces; None if it tells none."""

    @property
    def path(self) -> str:
        """The path that is shown for the surface: the first prefix, or else the first of `paths`."""
        return (*self.prefixes, *self.paths)[0].decode()

    def owns(self, raw_path: bytes) -> bool:
        """Whether a path belongs to the surface."""
        return raw_path in self.paths or raw_path.startswith(self.prefixes)
