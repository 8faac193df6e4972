"""Jobs that are submitted with the caller's own transaction, through the outbox of `semel.once`."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from semel import once
from semel.client import Client, NotFoundError, Worker
from semel.once import KeyMismatch, Outbox
from tests.client.names import HMAC_KEY, TOKEN, fresh
from tests.harness.server import RunningServer


def test_a_job_is_submitted_if_and_only_if_the_transaction_commits(server: RunningServer, tmp_path: Path) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind, queue="billing", attempts=3)
    def bill(order: str) -> str:
        return f"billed {order}"

    path = tmp_path / "app.db"
    box = Outbox(path)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE orders (id TEXT)")
    for name in once.outbox_ddl("sqlite").split(";\n"):
        db.execute(name)
    db.commit()
    db.execute("INSERT INTO orders VALUES ('lost')")
    lost = bill.submit_in(db, order="lost")
    db.rollback()
    db.execute("INSERT INTO orders VALUES ('4711')")
    kept = bill.with_options(key=fresh("key")).submit_in(db, order="4711")
    assert not bill.with_options(key=kept.key).submit_in(db, order="4711").fresh
    with pytest.raises(KeyMismatch):
        bill.with_options(key=kept.key).submit_in(db, order="4712")
    with Client(server.url) as client, pytest.raises(NotFoundError):
        client.jobs.lookup(key=kept.key)
    db.commit()
    assert box.flush_sync(timeout=20).delivered == 1
    with Client(server.url) as client:
        job = client.jobs.lookup(key=kept.key)
        assert (job.kind, job.params, job.queue, job.max_attempts) == (kind, {"order": "4711"}, "billing", 3)
        with pytest.raises(NotFoundError):
            client.jobs.lookup(key=lost.key)
        worker.run(until_idle=True)
        assert bill.handle(job.job_id).result() == "billed 4711"
    box.close()
    db.close()
    worker.close()


def test_an_outbox_of_its_own_and_a_token_that_is_not_stored(
    strict: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMEL_TOKEN", TOKEN)
    worker, kind = Worker(strict.url, result_hmac_key=HMAC_KEY), fresh("kind")

    @worker.job(kind)
    def bill(order: str) -> str:
        return f"billed {order}"

    path = tmp_path / "outbox.db"
    box = Outbox(path)
    posted = [bill.submit_in(box, order="1"), asyncio.run(bill.submit_in_async(box, order="2"))]
    stored = b"".join(one.read_bytes() for one in tmp_path.glob("outbox.db*"))
    assert b"SEMEL_TOKEN" in stored
    assert TOKEN.encode() not in stored
    assert b"generated_key" not in stored  # the row may be sent at any time
    assert box.flush_sync(timeout=20).delivered == 2
    worker.run(until_idle=True)
    with Client(strict.url, token=TOKEN, result_hmac_key=HMAC_KEY) as client:
        ids = [client.jobs.lookup(key=one.key).job_id for one in posted]
        assert [client.jobs.result(one).result for one in ids] == ["billed 1", "billed 2"]
    box.close()
    worker.close()
