"""The surfaces of the server: a table. A new surface is one folder beside this file, and one line in it.

The application, the listeners, metrics, settings, token scopes, the start banner and the tables of the documentation
read this table; nothing else names a surface.
"""

from __future__ import annotations

from semel.server.auth.principals import ScopeRules
from semel.server.surface import Surface
from semel.surfaces.deltas.surface import DELTAS
from semel.surfaces.events.surface import EVENTS
from semel.surfaces.jobs.surface import JOBS
from semel.surfaces.ledger.surface import LEDGER
from semel.surfaces.streams.surface import STREAMS

SURFACES: tuple[Surface, ...] = (STREAMS, EVENTS, JOBS, LEDGER, DELTAS)

SCOPE_RULES = ScopeRules(
    surfaces=tuple(surface.name for surface in SURFACES),
    normalized=frozenset(surface.name for surface in SURFACES if surface.has_normalized_names),
    claims=tuple((surface.name, claim) for surface in SURFACES for claim in surface.scope_claims),
)


def surface_at(raw_path: bytes) -> Surface | None:
    """The surface that a path belongs to."""
    return next((surface for surface in SURFACES if surface.owns(raw_path)), None)
