"""What a program loads: the surface that it uses, and no driver, store or event loop besides."""

from __future__ import annotations

import os
import subprocess
import sys

HEAVY = ("aiohttp", "apsw", "asyncio", "django", "psycopg", "semel.engine", "semel.once", "semel.server", "sqlalchemy")
MOST_OWN = 20
"""The modules of `semel.client.events` and what it alone needs of the client."""


def loaded(code: str) -> set[str]:
    """The modules that a program loads."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return set(subprocess.check_output([sys.executable, "-c", script], env=env, text=True, timeout=60).split())


def test_a_client_of_events_loads_only_what_it_uses() -> None:
    before = loaded("from semel import Client; Client()")
    assert not [name for name in before if name.startswith("semel.client.events")]
    after = loaded("from semel import Client; Client().events")
    own = after - before
    assert len([name for name in own if name.startswith("semel.client")]) <= MOST_OWN, sorted(own)
    assert not [name for name in own if name.startswith(HEAVY)]


def test_a_cursor_in_a_transaction_loads_no_driver_but_its_own() -> None:
    code = "import sqlite3; from semel.client import TransactionCursor; TransactionCursor(sqlite3.connect(''), 'n')"
    assert not [
        name for name in loaded(code) if name.startswith(("apsw", "asyncio", "django", "psycopg", "sqlalchemy"))
    ]
