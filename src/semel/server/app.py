"""The application of the HTTP host: it routes each request by its raw path to the surface that owns the prefix.

The shell around all surfaces handles what is the same for every path: the request id, CORS, OPTIONS, the two listeners,
the audit line of a denied request, and the error id of an internal error. A surface provides its handler and the format
of its refusals.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.kernel.errors import Refusal
from semel.server.api_document import api_document
from semel.server.auth.authentication import denied
from semel.server.auth.token_contract import TokenContract, TokenLimits
from semel.server.console.calls import call_path, change_refusal, page_refusal
from semel.server.console.files import PAGE, ConsoleSurface, is_of_console
from semel.server.context import Context
from semel.server.http.answer import SECURITY, Answer, header_block
from semel.server.http.application import UpgradedConnection
from semel.server.http.cors import Provenance, preflight_headers, provenance_in, shared_with
from semel.server.http.problem import problem_answer
from semel.server.http.request import Request
from semel.server.listeners import PathPlace, Plane, place_of
from semel.server.ops.endpoints import Operations
from semel.server.ops.token_calls import TokenCalls
from semel.server.quotas.accounts import QuotaExceededError
from semel.server.refusal import origin_refusal, refusal_of
from semel.server.surface import HttpSurface
from semel.server.writes.find_calls import WriteCalls
from semel.surfaces.registry import SCOPE_RULES, SURFACES

_NOTHING_HERE = Refusal(
    "NOT_FOUND", f"There is nothing at this path; {', '.join(f'{row.name} are at {row.path}' for row in SURFACES)}."
)
_ELSEWHERE = Refusal("WRONG_PLANE", "This path is served on the server's other port.")
_CONSOLE_OFF = Refusal("NOT_FOUND", "The console is turned off on this server: start it without SEMEL_CONSOLE=0.")
_COMMON = header_block(SECURITY)


class App:
    """The application: every surface and the server's own paths, on one listener or on two."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._policy = context.settings.origin_policy
        self.control_port = 0
        """The port of the control listener; 0 without one."""
        self._operations = Operations(
            context, [row.diagnose for row in SURFACES if row.diagnose is not None], api_document
        )
        settings = context.settings
        limits = TokenLimits(settings.max_stored_tokens, settings.stored_token_retention_ms)
        self.token_contract = TokenContract(limits)
        self._tokens = TokenCalls(context, self.token_contract, SCOPE_RULES)
        self._writes = WriteCalls(context, [row.find for row in SURFACES if row.find is not None])
        self._console = ConsoleSurface() if settings.console else None
        self.surfaces = tuple(surface.run(context) for surface in SURFACES)
        context.metrics.surfaces.extend(self.surfaces)
        self._by_name: dict[str, HttpSurface] = {one.surface: one for one in self.surfaces}
        self._by_name |= {one.surface: one for one in (self._operations, self._tokens, self._writes)}
        if self._console is not None:
            self._by_name[self._console.surface] = self._console
        self._owners = tuple(zip(SURFACES, self.surfaces, strict=True))

    def handle(self, request: Request) -> Answer | None:
        """Answer one request; an unexpected error becomes a 500 with an id that the log has too."""
        called = call_path(request.raw_path) if self._console is not None else None
        if called is not None:
            request.raw_path = called
        surface = self._surface_of(request.raw_path)
        request.id = self._context.request_id(request.fields.get(b"x-request-id"))
        if surface is None:
            request.common = _COMMON
        else:
            request.surface = surface.surface
            request.common = surface.common(request)
        try:
            return self._answer(request, surface) if called is None else self._answer_console(request, surface)
        except QuotaExceededError as error:
            answer = self.failed(request, error)
            if not error.late_seconds:
                return answer
            request.exchange.reply_late(answer, error.late_seconds)
            return None
        except Exception as error:  # noqa: BLE001 - any error becomes an answer and is logged
            return self.failed(request, error)

    def failed(self, request: Request, error: Exception) -> Answer:
        """The refusal for an error, in the format of the surface; an unknown error is an internal error."""
        return refusal_of(self._context, self._by_name.get(request.surface), request, error)

    def answered(self, request: Request, status: int) -> None:
        """Count an answer."""
        self._context.metrics.answered(request.surface, request.method, status, request.began_at, request.is_live)

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal of the host for input that never became a request."""
        self._context.metrics.requests["none", "-", refusal.kind.status] += 1

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The WebSocket handler of a path; None without one."""
        surface = self._surface_of(raw_path)
        return None if surface is None else surface.socket_at(raw_path)

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """Whether a local address is that of the control listener."""
        return self.control_port != 0 and address is not None and address[1] == self.control_port

    def stop(self) -> None:
        """The server is stopping: end live readers that no commit signal wakes."""
        for surface in self.surfaces:
            surface.stop()

    def _answer(self, request: Request, surface: HttpSurface | None) -> Answer | None:
        provenance = provenance_in(request.headers)
        foreign = self._policy.refusal(provenance)
        if foreign is not None:
            return origin_refusal(self._context, surface, request, provenance, foreign)
        if provenance.origin is not None and surface is not self._console:
            request.common += header_block((shared_with(provenance.origin),))
        is_preflight = provenance.is_preflight and provenance.origin is not None and surface is not self._console
        if request.method == "OPTIONS" and is_preflight:
            return self._preflight(request, provenance)
        if self.control_port:
            elsewhere = self._misplaced(request, request.raw_path)
            if elsewhere is not None:
                return self._render(request, surface, elsewhere)
        if surface is None:
            return self._render(request, None, _CONSOLE_OFF if is_of_console(request.raw_path) else _NOTHING_HERE)
        if request.method == "OPTIONS":
            return Answer(204, [(b"allow", surface.allow)])
        return surface.handle(request)

    def _answer_console(self, request: Request, surface: HttpSurface | None) -> Answer | None:
        """Answer a call of the console: no CORS, and on the listener of the console whatever the call is."""
        context, provenance = self._context, provenance_in(request.headers)
        foreign = self._policy.refusal(provenance) or page_refusal(request.fields, provenance)
        if foreign is not None:
            return origin_refusal(context, surface, request, provenance, foreign)
        elsewhere = self._misplaced(request, PAGE) if self.control_port else None
        refusal = elsewhere or change_refusal(request, context.principals, context.world.wall_ms())
        if refusal is not None:
            if refusal.is_denial:
                denied(context, request.where)
            return self._render(request, surface, refusal)
        return self._render(request, None, _NOTHING_HERE) if surface is None else surface.handle(request)

    def _preflight(self, request: Request, provenance: Provenance) -> Answer:
        """Answer a CORS preflight request."""
        request.surface = self._operations.surface
        return Answer(204, preflight_headers(provenance))

    def _misplaced(self, request: Request, raw_path: bytes) -> Refusal | None:
        """The refusal of a path that this listener does not serve; a request for the other listener goes to the audit
        log.
        """
        listener = Plane.CONTROL if self.is_control(request.server) else Plane.DATA
        place = place_of(raw_path, listener)
        if place is PathPlace.ELSEWHERE:
            self._context.audit.note("PORT_MISMATCH", request.where)
            return _ELSEWHERE
        return _NOTHING_HERE if place is PathPlace.NOWHERE else None

    def _surface_of(self, raw_path: bytes) -> HttpSurface | None:
        """The surface that owns a path."""
        for row, surface in self._owners:
            if row.owns(raw_path):
                return surface
        if raw_path in self._operations.paths:
            return self._operations
        if self._writes.owns(raw_path):
            return self._writes
        if self._tokens.owns(raw_path):
            return self._tokens
        return self._console if self._console is not None and self._console.owns(raw_path) else None

    def _render(self, request: Request, surface: HttpSurface | None, refusal: Refusal) -> Answer:
        """A refusal of the shell, in the format of the surface that owns the path."""
        return problem_answer(refusal) if surface is None else surface.render(request, refusal)
