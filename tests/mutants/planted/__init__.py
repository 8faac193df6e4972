"""Bugs to plant: each breaks one promise, and the tests that are named with it must notice.

A row names the text that is replaced, which must stand in its file exactly once, so that a change of the code that
makes a row meaningless is noticed too. Rooms have a module each.
"""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, Edit
from tests.mutants.planted.clients import CLIENTS
from tests.mutants.planted.core import CORE
from tests.mutants.planted.credentials import CREDENTIALS
from tests.mutants.planted.event_clients import EVENT_CLIENTS
from tests.mutants.planted.express import EXPRESS
from tests.mutants.planted.forks import FORKS
from tests.mutants.planted.jobs import JOBS
from tests.mutants.planted.namespaces import NAMESPACES
from tests.mutants.planted.operating import OPERATING
from tests.mutants.planted.quotas import QUOTAS
from tests.mutants.planted.reads import READS
from tests.mutants.planted.stores import STORES
from tests.mutants.planted.subscriptions import SUBSCRIPTIONS
from tests.mutants.planted.surfaces import SURFACES
from tests.mutants.planted.tracing import TRACING
from tests.mutants.planted.workers import WORKERS
from tests.mutants.planted.writes import WRITES

__all__ = ["BUGS", "Bug", "Edit"]

BUGS: tuple[Bug, ...] = (
    *CORE,
    *CREDENTIALS,
    *EXPRESS,
    *FORKS,
    *JOBS,
    *NAMESPACES,
    *QUOTAS,
    *OPERATING,
    *READS,
    *STORES,
    *SUBSCRIPTIONS,
    *SURFACES,
    *CLIENTS,
    *EVENT_CLIENTS,
    *TRACING,
    *WORKERS,
    *WRITES,
)
