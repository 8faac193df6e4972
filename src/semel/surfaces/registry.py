"""The table of all surfaces. A new surface is one folder beside this file and one line in `NAMES`.

The application, the listeners, metrics, settings, token scopes, the schema, the start banner and the tables of the
documentation read this table; no other module names a surface. `SURFACES` is loaded on first use, so that a command
that needs only the tables of the store does not load the server.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.server.auth.principals import ScopeRules
    from semel.server.surface import Surface

    SURFACES: tuple[Surface, ...]
    SCOPE_RULES: ScopeRules

NAMES = (
    "streams",
    "events",
    "jobs",
    "ledger",
    "deltas",
)
"""Folders beside this file; `ROW` in the `surface.py` of a folder is the surface's row of the table."""


def __getattr__(name: str) -> object:
    if name == "SURFACES":
        return _surfaces()
    if name == "SCOPE_RULES":
        return _scope_rules()
    raise AttributeError(name)


def surface_at(raw_path: bytes) -> Surface | None:
    """The surface that owns a path; None if no surface does."""
    return next((surface for surface in _surfaces() if surface.owns(raw_path)), None)


@cache
def _surfaces() -> tuple[Surface, ...]:
    return tuple(import_module(f"semel.surfaces.{name}.surface").ROW for name in NAMES)


@cache
def _scope_rules() -> ScopeRules:
    from semel.server.auth.principals import ScopeRules  # noqa: PLC0415 - loaded on first use

    surfaces = _surfaces()
    return ScopeRules(
        surfaces=tuple(surface.name for surface in surfaces),
        normalized=frozenset(surface.name for surface in surfaces if surface.has_normalized_names),
        claims=tuple((surface.name, claim) for surface in surfaces for claim in surface.scope_claims),
    )
