"""One PostgreSQL for a whole run of the tests; each test has a schema of its own in it."""

from __future__ import annotations

import atexit
import functools
import itertools

from tests.harness.postgres.cluster import Cluster

PATIENT = {"patience_ms": "120000", "connect_timeout": "60"}
QUIET = {"autovacuum": "off"}
"""Thousands of schemas are made and left: to tend them would take more time than the tests."""
_numbers = itertools.count(1)


@functools.cache
def shared_cluster() -> Cluster:
    """Started when it is first needed, removed when the process ends."""
    cluster = Cluster(settings=QUIET)
    atexit.register(cluster.remove)
    cluster.create()
    cluster.start()
    return cluster


def fresh_url(**parameters: str) -> str:
    """The URL of a schema that nobody has used; a server that stands still for a while is waited for."""
    query = {"schema": f"test_{next(_numbers)}"} | PATIENT | parameters
    return f"{shared_cluster().url}?" + "&".join(f"{name}={value}" for name, value in query.items())
