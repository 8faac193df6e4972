"""Stores that are opened without a server: held alone, or read beside a running server.

A store is that of a server with the same settings. An unusable store is refused before it is opened, because opening
creates and migrates it. A store that is held is used by no server meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.kernel.namespace import DEFAULT
from semel.server.settings import ServerSettings
from semel.server.settings_loader import load_settings
from semel.store.backup import TargetNotEmptyError
from semel.store.migrations import Migration, pending
from semel.store.open import inspect_store, open_persistent, open_read_only, open_store, shown
from semel.store.protocol import PersistentStore, Snapshot, Store, StoreError
from semel.surfaces.epoch_raise import EpochPlan, EpochRefused, Epochs, RaiseEpoch
from semel.surfaces.schema import MIGRATIONS, TABLES


def store_settings(
    config: Path | None, store: str | None, data: str | None, namespace: str = DEFAULT
) -> ServerSettings:
    """The settings of a server that would use this store, in one namespace. Raises `SettingsError` and
    `NamespaceNameError`.
    """
    # Nothing listens here, so settings that only a listening server needs are not required.
    return load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config).within(namespace)


def opened(url: str) -> Store:
    """The store, created and migrated as a server does at its start."""
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


def opened_persistent(url: str) -> PersistentStore:
    """As `opened`, but for a memory store, and also a store that is marked as moved."""
    return open_persistent(url, TABLES, MIGRATIONS, SystemWorld().wall_ms, may_be_moved=True)


@contextmanager
def held_store(url: str, *, in_vain: str) -> Iterator[PersistentStore]:
    """A store with data, held alone, also one that is marked as moved; `in_vain` is why a memory store is refused.
    Raises `StoreError`.
    """
    if url.startswith("memory:"):
        raise StoreError(f"A memory store is empty at every start: {in_vain}.")
    refuse_unready(url, ": create a store with `semel migrate`")
    with closing(opened_persistent(url)) as store:
        # A folder has a lock, and the nodes of a database have a leader.
        if not store.leads():
            raise StoreError(f"A server is using {shown(url)}: stop all of its nodes first.")
        yield store


def refuse_unready(url: str, advice: str = "") -> None:
    """Raise `StoreError` for a store without data, or of an older schema."""
    version = inspect_store(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}{advice}.")
    if pending(MIGRATIONS, version, shown(url)):
        raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")


def refuse_occupied(url: str) -> None:
    """Raise `StoreError` for a store with rows, or of a newer schema."""
    there = inspect_store(url, TABLES)
    pending(MIGRATIONS, there.version, shown(url))
    if there.occupied is not None:
        raise TargetNotEmptyError(there.occupied)


@contextmanager
def snapshot_of(url: str) -> Iterator[Snapshot]:
    """One snapshot of a store that a server may be using: nothing is locked or changed. Raises `StoreError`."""
    with open_read_only(url, TABLES, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
        yield snapshot


def reading_of(snapshot: Snapshot) -> Reading:
    """A snapshot as a surface reads it, at the time of the snapshot."""
    now_ms = snapshot.now_ms
    return Reading(snapshot, SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms))


def missing_migrations(url: str) -> Sequence[Migration]:
    """The migrations that a store lacks. Nothing is changed. Raises `StoreError`."""
    return pending(MIGRATIONS, inspect_store(url, ()).version, shown(url))


def raise_epoch(store: PersistentStore) -> EpochPlan | EpochRefused:
    """Begin a new epoch of every log: one write through the engine. A store that was moved may be used again. Raises
    `EngineError` and `CommitUnknownError`.
    """

    async def run() -> EpochPlan | EpochRefused:
        engine = Engine(store, SystemWorld())
        try:
            done: EpochPlan | EpochRefused = await engine.submit(Write(Epochs(), RaiseEpoch()))
            if isinstance(done, EpochPlan):
                store.mark_moved(False)  # after the raise: a crash between leaves a store on which no server starts
            return done
        finally:
            await engine.stop()

    return asyncio.run(run())
