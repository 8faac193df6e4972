"""Refusals that the shell decides for every surface and wire: a foreign web origin, a missing right, and a fault.

The surface gives each of them its own shape; audit lines, error ids and the trace in the log are the same everywhere.
"""

from __future__ import annotations

import logging
import re

from semel.kernel.errors import Refusal, Refused
from semel.server.auth.authentication import denied
from semel.server.context import Context
from semel.server.http.answer import Answer
from semel.server.http.cors import REFUSED, Provenance
from semel.server.http.problem import internal_refusal, problem_answer
from semel.server.http.request import Request
from semel.server.surface import HttpSurface

_log = logging.getLogger("semel.server")

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def origin_refusal(
    context: Context, surface: HttpSurface | None, request: Request, provenance: Provenance, refusal: Refusal
) -> Answer:
    """The refusal of a page, or of a host name, that is not allowed, with its audit line."""
    context.audit.note(REFUSED, {**provenance.shown, **request.where})
    return problem_answer(refusal) if surface is None else surface.render(request, refusal)


def refusal_of(context: Context, surface: HttpSurface | None, request: Request, error: Exception) -> Answer:
    """The refusal that an error means to the surface of the request; any other error is a fault of ours."""
    try:
        answer = None if surface is None else surface.refuse(request, error)
    except Exception as second:  # noqa: BLE001 - rendering failed: that is the fault to look at
        error, answer = second, None
    if answer is None:
        return _fault(context, surface, request, error)
    if surface is not None and not surface.audits_denials and isinstance(error, Refused) and error.refusal.is_denial:
        denied(context, request.where)
    return answer


def _fault(context: Context, surface: HttpSurface | None, request: Request, error: Exception) -> Answer:
    error_id = context.world.random_bytes(8).hex()
    facts = {"error_id": error_id, "request_id": request.id.decode("latin-1"), **_trace(request)}
    _log.error("fault in a request", exc_info=error, extra=facts)
    if surface is None:
        return problem_answer(internal_refusal(error_id))
    return surface.render(request, surface.fault(error_id))


def _trace(request: Request) -> dict[str, str]:
    """The trace that a request belongs to, by its W3C `traceparent`."""
    found = _TRACEPARENT.fullmatch(request.fields.get(b"traceparent") or b"")
    return {} if found is None else {"trace_id": found[1].decode()}
