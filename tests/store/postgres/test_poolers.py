"""A pooler that gives one session to several clients is refused at the start, in one sentence.

PgBouncer in transaction mode is such a one. Older versions let prepared statements of another client show through;
newer ones hide them, and are found out by two connections that have the same session.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from semel.store.open import open_store
from semel.store.postgres import store as postgres_store
from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import connect
from semel.store.postgres.pipeline import PgPipeline
from semel.store.protocol import StoreError
from tests.harness.postgres.shared import fresh_url
from tests.store.conformance import MIGRATIONS, TABLES, Clock

SENTENCE = "pool_mode = session"


def open_and_close(url: str) -> None:
    open_store(url, TABLES, MIGRATIONS, Clock()).close()


def test_a_session_that_another_client_has_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = psycopg.connect

    def used(*arguments: Any, **named: Any) -> psycopg.Connection:
        made = genuine(*arguments, **named)
        made.execute("PREPARE semel_1 AS SELECT 1")
        return made

    monkeypatch.setattr(psycopg, "connect", used)
    with pytest.raises(StoreError, match=SENTENCE):
        open_and_close(fresh_url())


def test_two_connections_with_one_session_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[PgPipeline] = []

    def shared(address: PgAddress) -> PgPipeline:
        sessions.append(connect(address))
        sessions[-1].session = sessions[0].session
        return sessions[-1]

    monkeypatch.setattr(postgres_store, "connect", shared)
    with pytest.raises(StoreError, match=SENTENCE):
        open_and_close(fresh_url())
    assert [one.is_lost for one in sessions] == [True, True]


def test_sessions_of_their_own_are_taken() -> None:
    open_and_close(fresh_url())
