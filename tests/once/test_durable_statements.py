"""Every statement of a store is on disk when it returns, whatever the role or the session says of commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool
from sqlalchemy import create_engine

from semel import once
from semel.once import Once, Outbox
from semel.once.messages import Delivery
from tests.once.conftest import fresh_schema
from tests.once.keeping import with_driver

SEEN = """
CREATE TABLE seen (setting text);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON semel_once FOR EACH ROW EXECUTE FUNCTION look();
CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON semel_outbox FOR EACH ROW EXECUTE FUNCTION look();
"""
IN_FORCE = {"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"}
KINDS = ("url", "engine", "engine in autocommit", "pool", "pool in autocommit")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test has opened."""
    with ExitStack() as found:
        yield found


def place_of(kind: str, url: str, stack: ExitStack) -> Any:
    """What a store is over."""
    if kind == "url":
        return url
    if kind.startswith("pool"):
        return stack.enter_context(ConnectionPool(url, min_size=1, kwargs={"autocommit": "autocommit" in kind}))
    options = {"isolation_level": "AUTOCOMMIT"} if "autocommit" in kind else {}
    engine = create_engine(with_driver(url), **options)
    stack.callback(engine.dispose)
    return engine


def migrated() -> str:
    """The URL of a schema whose tables note how each write commits."""
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((once.ddl("postgresql") + once.outbox_ddl("postgresql") + SEEN).encode())
    return url


def seen(url: str) -> set[str]:
    """What was in force at each write."""
    with psycopg.connect(url) as connection:
        return {row[0] for row in connection.execute(b"SELECT setting FROM seen").fetchall()}


@pytest.mark.parametrize("setting", IN_FORCE)
@pytest.mark.parametrize("kind", KINDS)
def test_receipts_are_on_disk_whatever_is_set(stack: ExitStack, kind: str, setting: str) -> None:
    url = migrated()
    store = Once(place_of(kind, f"{url}%20-c%20synchronous_commit%3D{setting}", stack))
    stack.callback(store.close)

    @store.once(key="key")
    def charge(key: str) -> str:
        if key == "b":
            raise ValueError("declined")
        return key

    assert charge("a") == "a"
    with pytest.raises(ValueError, match="declined"):
        charge("b")
    assert charge.forget("a")
    assert seen(url) == {IN_FORCE[setting]}


@pytest.mark.parametrize("setting", IN_FORCE)
def test_messages_are_on_disk_whatever_is_set(setting: str) -> None:
    url = migrated()
    place = f"{url}%20-c%20synchronous_commit%3D{setting}"
    box = Outbox(place, transport=lambda message, deadline: Delivery(status=200))
    box.post("http://127.0.0.1:9/x", json=1, key="a")
    assert box.flush_sync(20).delivered == 1
    box.close()
    assert seen(url) == {IN_FORCE[setting]}
