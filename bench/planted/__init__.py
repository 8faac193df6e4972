"""Bugs to plant: each breaks one promise, and the tests that are named with it must notice.

A row names the text that is replaced, which must stand in its file exactly once, so that a change of the code that
makes a row meaningless is noticed too. Rooms have a module each.
"""

from __future__ import annotations

from bench.planted.bug import Bug, Edit
from bench.planted.clients import CLIENTS
from bench.planted.core import CORE
from bench.planted.stores import STORES
from bench.planted.surfaces import SURFACES

__all__ = ["BUGS", "Bug", "Edit"]

BUGS: tuple[Bug, ...] = (*CORE, *STORES, *SURFACES, *CLIENTS)
