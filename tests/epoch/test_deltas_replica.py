"""A replica of the SDK after a restore: it takes the checkpoint by itself, keeps what it has to send, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.replica_kinds import Opened, open_replica
from tests.epoch.restored import GATEWAY, Premises

Rows = dict[str, dict[str, Any]]


def replica(path: Path, url: str) -> Opened:
    return open_replica(path, gateway=GATEWAY, url=url, client_id=path.stem, moved=True)


async def at_work(path: Path, url: str, work: Callable[[Opened], Any]) -> Rows:
    """What a replica has when it has done something."""
    async with replica(path, url) as db:
        done = work(db)
        if done is not None:
            await done
        return {row: columns for table in db.tables() for row, columns in db.rows(table).items()}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_g6_a_replica_begins_anew_in_a_new_epoch_and_keeps_what_it_has_to_send(tmp_path: Path, kind: str) -> None:
    premises, path, late = Premises(kind, tmp_path), tmp_path / "app.db", tmp_path / "late.db"

    def write(db: Opened) -> None:
        db.insert("todos", "unsent", {"n": 1})

    def lose(db: Opened) -> Any:
        db.insert("todos", "lost", {"n": 1})
        return db.push()

    with premises.serving() as writer:
        writer.push("r1", "kept")
        for one in (path, late):
            assert set(asyncio.run(at_work(one, writer.url, lambda db: db.sync()))) == {"r1"}
    premises.back_up()
    with premises.serving() as writer:
        writer.push("r2", "lost")
        # One has a cursor of the lost time. The other has a cursor of before it, and what was acknowledged in it.
        assert set(asyncio.run(at_work(path, writer.url, lambda db: db.pull()))) == {"r1", "r2"}
        assert set(asyncio.run(at_work(late, writer.url, lose))) == {"r1", "lost"}
    premises.restore()
    premises.raise_epoch()
    with premises.serving() as writer:
        writer.push("r3", "new")
        asyncio.run(at_work(path, writer.url, write))
        assert set(asyncio.run(at_work(path, writer.url, lambda db: db.pull()))) == {"r1", "r3", "unsent"}
        rows = asyncio.run(at_work(path, writer.url, lambda db: db.sync()))
        assert set(rows) == {"r1", "r3", "unsent"}
        assert asyncio.run(at_work(late, writer.url, lambda db: db.sync())) == rows
        assert asyncio.run(at_work(tmp_path / "new.db", writer.url, lambda db: db.sync())) == rows


def test_g6_a_replica_of_a_gateway_that_the_backup_does_not_have_begins_anew(tmp_path: Path) -> None:
    premises, path = Premises("sqlite", tmp_path), tmp_path / "app.db"
    with premises.serving():
        pass
    premises.back_up()
    with premises.serving() as writer:
        writer.push("r1", "lost")
        assert set(asyncio.run(at_work(path, writer.url, lambda db: db.sync()))) == {"r1"}
    premises.restore()
    premises.raise_epoch()
    with premises.serving() as writer:
        assert asyncio.run(at_work(path, writer.url, lambda db: db.sync())) == {}
        writer.push("r2", "new")
        assert set(asyncio.run(at_work(path, writer.url, lambda db: db.sync()))) == {"r2"}


def test_g6_a_restore_without_a_new_epoch_is_noticed_where_the_log_is_shorter(tmp_path: Path) -> None:
    premises, path = Premises("sqlite", tmp_path), tmp_path / "app.db"
    with premises.serving() as writer:
        writer.push("r1", "kept")
    premises.back_up()
    with premises.serving() as writer:
        writer.push("r2", "lost")
        assert set(asyncio.run(at_work(path, writer.url, lambda db: db.sync()))) == {"r1", "r2"}
    premises.restore()
    with premises.serving() as writer:
        assert set(asyncio.run(at_work(path, writer.url, lambda db: db.sync()))) == {"r1"}
