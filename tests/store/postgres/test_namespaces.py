"""Schemas of one database have their own locks: no transaction, leader or notification of one waits for another."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from semel.engine.clock import SystemWorld
from semel.kernel.namespace import MOST, url_within
from semel.store.open import open_store, refuse_shared_locks
from semel.store.postgres.locks import LockKind, clash_of, space
from semel.store.protocol import Lock, Store, StoreError
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.harness.postgres.shared import fresh_url
from tests.harness.together import eventually

PATIENCE_SECONDS = 60.0
SAME_HASH = ("uablaijhsa", "pfcxpytzcn")
"""Two names whose schemas have the same CRC-32, found by a search."""


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


def lock_in(store: Store, lock: Lock, held: threading.Event) -> threading.Thread:
    """Take a lock in a thread, and tell when it is held."""

    def run() -> None:
        tx = store.begin([lock])
        try:
            tx.load({}, ())
            held.set()
        finally:
            tx.rollback()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_lock_of_one_namespace_is_free_in_another() -> None:
    url = fresh_url()
    with (
        closing(opened(url)) as default,
        closing(opened(url)) as same,
        closing(opened(url_within(url, "red"))) as red,
    ):
        lock = Lock(b"events")
        tx = default.begin([lock])
        try:
            tx.load({}, ())
            in_red, in_default = threading.Event(), threading.Event()
            lock_in(red, lock, in_red)
            waiting = lock_in(same, lock, in_default)
            assert in_red.wait(PATIENCE_SECONDS), "another namespace waited for the lock"
            assert not in_default.wait(0.3), "the lock did not exclude a node of the same namespace"
        finally:
            tx.rollback()
        assert in_default.wait(PATIENCE_SECONDS)
        waiting.join(PATIENCE_SECONDS)


def test_each_namespace_has_its_own_leader() -> None:
    url = fresh_url()
    with closing(opened(url)) as default, closing(opened(url_within(url, "red"))) as red:
        eventually(default.leads, "a leader of the default namespace")
        eventually(red.leads, "a leader of the other one")
        with closing(opened(url_within(url, "red"))) as second:
            assert not second.leads()


def test_the_locks_of_all_namespaces_that_a_process_may_have_differ() -> None:
    schemas = ["semel", *(f"semel_ns_tenant_{number}" for number in range(MOST))]
    assert clash_of(schemas) is None
    assert len({space(schema, kind) for schema in schemas for kind in LockKind}) == len(schemas) * len(LockKind)


def test_two_names_with_one_hash_are_refused() -> None:
    other, name = SAME_HASH
    urls = [url_within("postgresql://h/db", one) for one in (other, name)]
    with pytest.raises(StoreError, match=f"semel_ns_{other} and semel_ns_{name} would share locks"):
        refuse_shared_locks(urls)
    refuse_shared_locks(urls[:1])
    refuse_shared_locks([url_within("sqlite:data", one) for one in (other, name)])
