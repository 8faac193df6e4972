"""What a surface is to the server: a row of the registry, and the object that runs.

The shell around all surfaces does what is the same for them: the request id, the rule about web origins, OPTIONS, the
two listeners, the audit line of a caller without the right, the count of answers, and the error id of a fault.
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
from semel.server.auth.principals import ScopeClaim
from semel.server.context import Context
from semel.server.http.answer import Answer
from semel.server.http.application import UpgradedConnection
from semel.server.http.problem import engine_refusal, internal_refusal, problem_answer
from semel.server.http.request import Request
from semel.server.ops.diagnosis_bundle import SurfaceDiagnosis
from semel.server.settings import ServerSettings, SurfaceSettings
from semel.store.protocol import AnyTable


class ExtraListener(Protocol):
    """A port of a surface besides the HTTP listeners."""

    async def start(self) -> None:
        """Listen; raise `ListenError` where the port was asked for and cannot be had."""

    async def stop(self, seconds: float) -> None:
        """Let open calls end for this long, then close."""


class HttpSurface(ABC):
    """The owner of some paths over HTTP. Used on the event loop only."""

    surface: ClassVar[str]
    """Its name in metrics, scopes and settings."""
    allow: ClassVar[bytes]
    """The methods in use under its paths, as `OPTIONS` names them."""
    audits_denials: ClassVar[bool] = False
    """Whether its service writes the audit line of a caller without the right, for all of its wires; else the shell."""

    @abstractmethod
    def common(self, request: Request) -> bytes:
        """Header lines of every answer to the request, rendered."""

    @abstractmethod
    def handle(self, request: Request) -> Answer | None:
        """The answer; None when it comes later. May raise what `refuse` answers."""

    def refuse(self, request: Request, error: Exception) -> Answer | None:
        """The answer to an error that means a refusal; None for a fault."""
        if isinstance(error, Refused):
            return self.render(request, error.refusal)
        return self.render(request, self.failure(error)) if isinstance(error, EngineError) else None

    def render(self, request: Request, refusal: Refusal) -> Answer:
        """A refusal by the surface, or by the server itself, in the surface's own shape. Here: a problem document."""
        return problem_answer(refusal)

    def failure(self, error: EngineError) -> Refusal:
        """The refusal that an engine error means."""
        return engine_refusal(error)

    def fault(self, error_id: str) -> Refusal:
        """The refusal that a fault of ours means; the log has the details under the id."""
        return internal_refusal(error_id)

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """What speaks WebSocket at a path; None where none does."""
        return None


class RunningSurface(HttpSurface):
    """A surface of a running server."""

    contract: Contract
    """Its rules; the sweeper carries out their chores."""

    async def start(self) -> None:
        """Called once before the first request."""

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What runs in the background until the server stops."""
        return ()

    def listeners(self) -> Iterable[ExtraListener]:
        """Ports besides the HTTP listeners."""
        return ()

    def stop(self) -> None:
        """The server stops: live readers and long polls end."""

    def collect(self) -> Iterator[Metric]:
        """Its metric families."""
        return iter(())

    async def measure(self) -> None:
        """Read what is not counted but has to be looked up; called right before the metrics are collected."""

    def named(self) -> Mapping[str, float | None]:
        """Values under names of its own in the JSON form of `/metrics`."""
        return {}


@dataclass(frozen=True)
class Surface:
    """A row of the registry."""

    name: str
    about: str
    """One line, for the banner and the documentation."""
    paths: tuple[bytes, ...]
    """Paths that are its own."""
    prefixes: tuple[bytes, ...]
    """Beginnings of further paths that are its own."""
    tables: tuple[AnyTable, ...]
    settings: type[SurfaceSettings]
    run: Callable[[Context], RunningSurface]
    """Makes the object that runs."""
    windows: Callable[[ServerSettings], Mapping[AnyTable, int]] = lambda settings: {}
    """Tables whose rows are forgotten by age, in generations, and the age in milliseconds."""
    check: Callable[[ServerSettings], None] = lambda settings: None
    """Raises `SettingsError` for a setting that cannot be used; called before the store is opened."""
    diagnose: Callable[[Reading], SurfaceDiagnosis] | None = None
    """Reads its part of a diagnosis; None for a surface that has none."""
    has_credentials: Callable[[ServerSettings], bool] = lambda settings: False
    """Whether it takes credentials of its own, which the server as a whole does not."""
    scope_claims: Sequence[ScopeClaim] = ()
    """Claims of a JWT that limit what it reaches here."""
    has_normalized_names: bool = False
    """Whether names in its scopes are compared in Unicode's normal form NFC."""

    @property
    def path(self) -> str:
        """The path that is shown for it: the first of several."""
        return (*self.prefixes, *self.paths)[0].decode()

    def owns(self, raw_path: bytes) -> bool:
        """Whether a path belongs to it."""
        return raw_path in self.paths or raw_path.startswith(self.prefixes)
