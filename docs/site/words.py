"""Words that readers search for, each with the page that answers them: these come first in the search of the site.

Sphinx ranks a page by how many of the words it has, wherever they stand. An entry of its index comes before that.
"""

from __future__ import annotations

import re

WORDS = {
    "concepts": (
        *("exactly once", "exactly-once delivery", "at least once", "idempotency", "idempotency key", "fingerprint"),
        *("duplicate request", "durability", "fsync", "group commit", "epoch"),
    ),
    "guide/streams": ("append-only log", "producer id", "long poll", "webhook"),
    "guide/events": ("pub sub", "WebSocket"),
    "guide/jobs": ("job queue", "dead letter queue", "cron", "lease", "debounce"),
    "guide/workers": ("background task", "workflow", "retry policy"),
    "guide/ledger": ("hash chain", "Merkle proof", "optimistic locking"),
    "guide/deltas": ("last writer wins", "conflict resolution", "CRDT"),
    "guide/replicas": ("offline first", "local first"),
    "guide/clients": ("timeout", "outcome unknown", "async client"),
    "once/transaction": ("double charge", "unit of work"),
    "once/middleware": ("ASGI middleware", "WSGI middleware", "Idempotency-Key header", "FastAPI", "Django"),
    "once/outbox": ("transactional outbox", "dual write"),
    "once/recipes": ("Kafka", "RabbitMQ", "SQS", "Celery"),
    "operating/backup": ("backup", "point-in-time recovery", "disaster recovery"),
    "operating/access": ("authentication", "API key", "JWT", "audit log"),
    "operating/observe": ("OpenTelemetry", "distributed tracing"),
    "operating/postgres": (
        *("connection pool", "failover", "load balancer", "leader election", "high availability", "split brain"),
    ),
    "operating/running": (
        *("TLS", "graceful shutdown", "health check", "upgrade", "multi-tenancy", "tenant"),
        *("rate limit", "throttling", "noisy neighbour"),
    ),
    "reference/metrics": ("Prometheus", "monitoring", "alerting"),
    "reference/settings": ("maximum size", "payload limit"),
    "reference/errors": ("error code", "status code"),
}


def index_entry(page: str) -> str:
    """The entry of a page in the index, in the words of MyST; empty for a page without words."""
    words = ", ".join(f"!{word}" for word in WORDS.get(page, ()))
    return f"```{{index}} {words}\n```\n" if words else ""


def with_words(text: str, page: str) -> str:
    """A page with its words behind its first heading."""
    heading = re.search(r"^# .+$\n", text, re.MULTILINE)
    entry = index_entry(page)
    if heading is None or not entry:
        return text
    return f"{text[: heading.end()]}\n{entry}{text[heading.end() :]}"
