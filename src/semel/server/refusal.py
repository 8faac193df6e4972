"""Refusals that the shell decides for every surface and wire: a foreign web origin, a missing right, and a fault.

The surface renders each refusal in its own form; audit lines, error ids and the trace in the log are always the same.
"""

from __future__ import annotations

import logging

from semel.engine.back_pressure import InFlightError
from semel.kernel.errors import Refusal, Refused
from semel.server.auth.authentication import denied
from semel.server.context import Context
from semel.server.http.answer import Answer
from semel.server.http.cors import REFUSED, Provenance
from semel.server.http.problem import internal_refusal, problem_answer
from semel.server.http.request import Request
from semel.server.surface import HttpSurface

_log = logging.getLogger("semel.server")


def origin_refusal(
    context: Context, surface: HttpSurface | None, request: Request, provenance: Provenance, refusal: Refusal
) -> Answer:
    """Refuse a request from a web origin, or to a host name, that is not allowed, and write an audit line."""
    context.audit.note(REFUSED, {**provenance.shown, **request.where})
    return problem_answer(refusal) if surface is None else surface.render(request, refusal)


def refusal_of(context: Context, surface: HttpSurface | None, request: Request, error: Exception) -> Answer:
    """The answer to an error: the surface's refusal, or an internal fault with an error id."""
    if isinstance(error, InFlightError):
        error = context.quotas.in_flight_refusal(request.principal, lambda: request.where)
    try:
        answer = None if surface is None else surface.refuse(request, error)
    except Exception as second:  # noqa: BLE001 - rendering failed: report this fault instead
        error, answer = second, None
    if answer is None:
        return _fault(context, surface, request, error)
    if surface is not None and not surface.audits_denials and isinstance(error, Refused) and error.refusal.is_denial:
        denied(context, request.where)
    return answer


def _fault(context: Context, surface: HttpSurface | None, request: Request, error: Exception) -> Answer:
    error_id = context.world.random_bytes(8).hex()
    facts = {"error_id": error_id, **request.log_facts()}
    _log.error("fault in a request", exc_info=error, extra=facts)
    if surface is None:
        return problem_answer(internal_refusal(error_id))
    return surface.render(request, surface.fault(error_id))
