"""The settings under which the suite runs PostgreSQL, Redis and Semel itself."""

from __future__ import annotations

POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
REDIS = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
LIFTED = {
    "SEMEL_JOBS_MAX_QUEUE_DEPTH": "0",
    "SEMEL_JOBS_MAX_INFLIGHT": "0",
    "SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": "0",
}
"""The caps on jobs that wait, on leases and on keys."""
