"""Exclusive access to a store: opened as a server would open it, and held until the command is done.

Every refusal is a `StoreError` with one sentence, and comes before anything is made or migrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from semel.contracts.schema import MIGRATIONS, TABLES
from semel.server.world import SystemWorld
from semel.store.migrations import pending
from semel.store.open import look_at, open_store, shown
from semel.store.protocol import Store, StoreError


@contextmanager
def held_store(url: str, *, in_vain: str) -> Iterator[Store]:
    """The store, held by this process alone; `in_vain` is why a memory store is of no use here."""
    _refuse_unusable(url, in_vain)
    with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        _refuse_company(store, url)
        yield store


def _refuse_unusable(url: str, in_vain: str) -> None:
    """Before anything is opened, because opening makes and migrates."""
    if url.startswith("memory:"):
        raise StoreError(f"A memory store begins anew at every start: {in_vain}.")
    version = look_at(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}: `semel migrate` makes a store there.")
    if pending(MIGRATIONS, version):
        raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")


def _refuse_company(store: Store, url: str) -> None:
    """A folder is held by its server; of the nodes over a database one leads, and that is how they are noticed."""
    if not store.leads():
        raise StoreError(f"A server is using {shown(url)}: stop all of its nodes first.")
