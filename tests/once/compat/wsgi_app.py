"""Flask behind the middleware. With `--preload` it is imported, and its store is used, before the workers are forked.

Headers say what a handler does, as in `asgi_app`.
"""

from __future__ import annotations

import os
import time
from contextlib import closing

import psycopg
from flask import Flask, request
from sqlalchemy import text
from sqlalchemy.orm import Session

from semel import once
from semel.once import Once
from tests.once.compat.drivers import engine_at
from tests.once.compat.places import note_run
from tests.once.compat.run import Work, WorkError, charge, new_result

PLACE = os.environ["COMPAT_PLACE"]
LEASE = os.environ["COMPAT_LEASE"]
engine = engine_at(PLACE)
store = Once(PLACE if PLACE.startswith("postgresql") else f"{PLACE}.once")
app = Flask(__name__)


@store.once(key="key", scope="start", lease=LEASE)
def warm_up(key: str) -> str:
    """A call before the fork: the store has connections, a thread and a lease then."""
    time.sleep(0.01)
    return key


warm_up(f"{os.getpid()}")


def result_of(key: str) -> str:
    """What a block returns, behind its effect."""
    note_run(PLACE, key)
    work, seconds = request.headers.get("X-Work", ""), float(request.headers.get("X-Block", 0))
    if request.headers.get("X-Spin"):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            pass  # gevent cannot switch here
    else:
        time.sleep(seconds)
    if work == Work.RAISE:
        raise WorkError
    return new_result(key)


def statement_of(key: str) -> str:
    """The effect that a request asks for."""
    return charge(key, Work(request.headers.get("X-Work", Work.CHARGE)))


@app.post("/session")
def by_session() -> str:
    """A session of SQLAlchemy."""
    key = request.headers["Idempotency-Key"]
    with Session(engine) as session, session.begin(), once.transaction(session) as attempt:
        if attempt.fresh:
            session.execute(text(statement_of(key)))
            attempt.result = result_of(key)
    result: str = attempt.result
    return result


@app.post("/psycopg")
def by_psycopg() -> str:
    """A connection of the driver."""
    key = request.headers["Idempotency-Key"]
    with closing(psycopg.connect(PLACE)) as connection, connection, once.transaction(connection) as attempt:
        if attempt.fresh:
            connection.execute(statement_of(key).encode())
            attempt.result = result_of(key)
    result: str = attempt.result
    return result


wsgi = once.WsgiMiddleware(app, store, scope=None, require=["/"], lease=LEASE)
