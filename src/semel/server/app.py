"""The application behind the HTTP host: routes on the raw path to the owner of its prefix.

One shell around all surfaces: the request id, the rule about web origins, OPTIONS, the two listeners, the audit line
of a caller without the right, and the error id of a fault are the same for every path; a surface brings its handler and
the shape of its refusals.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.kernel.errors import Refusal
from semel.server.context import Context
from semel.server.http.answer import SECURITY, Answer, header_block
from semel.server.http.application import UpgradedConnection
from semel.server.http.cors import Provenance, preflight_headers, provenance_in, shared_with
from semel.server.http.problem import problem_answer
from semel.server.http.request import Request
from semel.server.listeners import PathPlace, Plane, place_of
from semel.server.ops.endpoints import Operations
from semel.server.refusal import origin_refusal, refusal_of
from semel.server.surface import HttpSurface
from semel.surfaces.registry import SURFACES

_NOTHING_HERE = Refusal(
    "NOT_FOUND", f"There is nothing at this path; {', '.join(f'{row.name} are at {row.path}' for row in SURFACES)}."
)
_ELSEWHERE = Refusal("WRONG_PLANE", "This path is answered on the server's other port.")
_COMMON = header_block(SECURITY)


class App:
    """The application: every surface and the server's own paths, on one listener or on two."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._policy = context.settings.origin_policy
        self.control_port = 0
        """Where the control listener is; 0 without one."""
        self._operations = Operations(context, [row.diagnose for row in SURFACES if row.diagnose is not None])
        self.surfaces = tuple(surface.run(context) for surface in SURFACES)
        context.metrics.surfaces.extend(self.surfaces)
        self._by_name: dict[str, HttpSurface] = {one.surface: one for one in self.surfaces}
        self._by_name[self._operations.surface] = self._operations
        self._owners = tuple(zip(SURFACES, self.surfaces, strict=True))

    def handle(self, request: Request) -> Answer | None:
        """Answer one request; what goes wrong unexpectedly is a 500 with an id that the log can be searched for."""
        surface = self._surface_of(request.raw_path)
        request.id = self._context.request_id(request.fields.get(b"x-request-id"))
        if surface is None:
            request.common = _COMMON
        else:
            request.surface = surface.surface
            request.common = surface.common(request)
        try:
            return self._answer(request, surface)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            return self.failed(request, error)

    def failed(self, request: Request, error: Exception) -> Answer:
        """The refusal that an error means to the surface of the request; any other error is a fault of ours."""
        return refusal_of(self._context, self._by_name.get(request.surface), request, error)

    def answered(self, request: Request, status: int) -> None:
        """Count an answer."""
        self._context.metrics.requests[request.surface, request.method, status] += 1

    def refused(self, refusal: Refusal) -> None:
        """The host has refused something that never became a request."""
        self._context.metrics.requests["none", "-", refusal.kind.status] += 1

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """What speaks WebSocket at a path; None where none does."""
        surface = self._surface_of(raw_path)
        return None if surface is None else surface.socket_at(raw_path)

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """Whether a local address is that of the control listener."""
        return self.control_port != 0 and address is not None and address[1] == self.control_port

    def stop(self) -> None:
        """The server stops: live readers that hang on no signal end."""
        for surface in self.surfaces:
            surface.stop()

    def _answer(self, request: Request, surface: HttpSurface | None) -> Answer | None:
        provenance = provenance_in(request.headers)
        foreign = self._policy.refusal(provenance)
        if foreign is not None:
            return origin_refusal(self._context, surface, request, provenance, foreign)
        if provenance.origin is not None:
            request.common += header_block((shared_with(provenance.origin),))
        if request.method == "OPTIONS" and provenance.is_preflight and provenance.origin is not None:
            return self._preflight(request, provenance)
        if self.control_port:
            elsewhere = self._misplaced(request)
            if elsewhere is not None:
                return self._render(request, surface, elsewhere)
        if surface is None:
            return self._render(request, None, _NOTHING_HERE)
        if request.method == "OPTIONS":
            return Answer(204, [(b"allow", surface.allow)])
        return surface.handle(request)

    def _preflight(self, request: Request, provenance: Provenance) -> Answer:
        """A browser asks before it sends."""
        request.surface = self._operations.surface
        return Answer(204, preflight_headers(provenance))

    def _misplaced(self, request: Request) -> Refusal | None:
        """Why the listener that was asked does not answer for the path; what it does not is on record."""
        listener = Plane.CONTROL if self.is_control(request.server) else Plane.DATA
        place = place_of(request.raw_path, listener)
        if place is PathPlace.ELSEWHERE:
            self._context.audit.note("PORT_MISMATCH", request.where)
            return _ELSEWHERE
        return _NOTHING_HERE if place is PathPlace.NOWHERE else None

    def _surface_of(self, raw_path: bytes) -> HttpSurface | None:
        """The owner of a path."""
        for row, surface in self._owners:
            if row.owns(raw_path):
                return surface
        return self._operations if raw_path in self._operations.paths else None

    def _render(self, request: Request, surface: HttpSurface | None, refusal: Refusal) -> Answer:
        """What the shell refuses, as the owner of the path refuses."""
        return problem_answer(refusal) if surface is None else surface.render(request, refusal)
