"""The surfaces of the server: a table. A new surface is one folder beside this file, and one line in it.

The application, the listeners, metrics, settings, token scopes, the schema, the start banner and the tables of the
documentation read this table; nothing else names a surface. `SURFACES` is loaded when it is first asked for, so that a
command that needs only the tables of the store does not load a server.
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
"""Each is a folder beside this file, with its row of the table in `surface.py` as `ROW`."""


def __getattr__(name: str) -> object:
    if name == "SURFACES":
        return _surfaces()
    if name == "SCOPE_RULES":
        return _scope_rules()
    raise AttributeError(name)


def surface_at(raw_path: bytes) -> Surface | None:
    """The surface that a path belongs to."""
    return next((surface for surface in _surfaces() if surface.owns(raw_path)), None)


@cache
def _surfaces() -> tuple[Surface, ...]:
    return tuple(import_module(f"semel.surfaces.{name}.surface").ROW for name in NAMES)


@cache
def _scope_rules() -> ScopeRules:
    from semel.server.auth.principals import ScopeRules  # noqa: PLC0415 - see above

    surfaces = _surfaces()
    return ScopeRules(
        surfaces=tuple(surface.name for surface in surfaces),
        normalized=frozenset(surface.name for surface in surfaces if surface.has_normalized_names),
        claims=tuple((surface.name, claim) for surface in surfaces for claim in surface.scope_claims),
    )
