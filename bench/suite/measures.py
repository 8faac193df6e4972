"""What `make bench` measures, by group."""

from __future__ import annotations

from typing import NamedTuple

APPEND_RANDOM, APPEND_ORDERED = "append, random keys", "append, ordered keys"
APPEND_PLAIN, APPEND_KNOWN = "append, no key", "append, known key"
FILLED_RANDOM, FILLED_ORDERED = "append, random keys, by receipts", "append, ordered keys, by receipts"
APPEND_AT_RATE = "append, random keys, at a share of the peak"
APPEND_ON_POSTGRES = "append, random keys, on PostgreSQL"
JOB_SUBMIT, JOB_KNOWN, JOB_BULK = "job submit", "job submit, known key", "job submit, 100 a request"
JOB_CYCLE, JOB_CYCLE_MANY = "claim 1 and complete", "claim 16 and complete"
EVENTS_SINGLE, EVENTS_BATCH = "events, batch 1", "events, batch 100"
LEDGER_SINGLE, LEDGER_BULK = "ledger, 1 operation", "ledger, 100 operations"
LEDGER_MANY = "ledger, many transactions"

APPEND_ONE_STREAM, APPEND_64_STREAMS = "append, no key, 1 stream", "append, no key, 64 streams"
CATCH_UP, CATCH_UP_BATCHES = "catch-up in MB, appends of 1 message", "catch-up in MB, appends of 100 messages"
TAIL_SLOW, TAIL = "tail of 1 stream, 1 append a second", "tail of 1 stream, 20 appends a second"
TAIL_10_STREAMS = "tail of 10 streams, 20 appends a second"
TAILS = (TAIL_SLOW, TAIL_10_STREAMS, TAIL)
READS = (CATCH_UP, CATCH_UP_BATCHES, *TAILS)
READERS = 1_000
SEMEL, REFERENCE = "Semel", "Durable Streams reference"


class Measure(NamedTuple):
    """One table: what is measured, with how many callers, and whether it is repeated with slower syncs."""

    name: str
    group: str
    candidates: tuple[str, ...]
    callers: tuple[int, ...] = (64,)
    is_delayed: bool = False
    shares: tuple[float, ...] = ()
    """Open loops at these shares of the peak that the same candidate had in the same round."""


MEASURES = (
    Measure(
        APPEND_RANDOM,
        "appends",
        ("Semel", "Redis", "NATS JetStream", "FastAPI and PostgreSQL", "the bare host"),
        (1, 16, 64, 256),
        is_delayed=True,
    ),
    Measure(APPEND_ORDERED, "appends", ("Semel", "Redis")),
    Measure(APPEND_PLAIN, "appends", ("Semel", "Redis", "NATS JetStream")),
    Measure(APPEND_KNOWN, "appends", ("Semel", "Redis", "NATS JetStream", "FastAPI and PostgreSQL", "the bare host")),
    Measure(FILLED_RANDOM, "receipts", ("Semel", "Semel, 5 million receipts")),
    Measure(FILLED_ORDERED, "receipts", ("Semel", "Semel, 5 million receipts")),
    Measure(APPEND_AT_RATE, "latency", ("Semel", "Redis"), shares=(0.25, 0.5, 0.75, 0.9)),
    *(
        Measure(
            name,
            "jobs",
            ("Semel", "Semel, one connection", "BullMQ, one connection", "BullMQ"),
            is_delayed=name == JOB_SUBMIT,
        )
        for name in (JOB_SUBMIT, JOB_KNOWN)
    ),
    Measure(JOB_BULK, "jobs", ("Semel", "BullMQ"), (4,)),
    Measure(JOB_CYCLE, "jobs", ("Semel", "Semel, the SDK's worker", "BullMQ, one connection")),
    Measure(JOB_CYCLE_MANY, "jobs", ("Semel", "BullMQ, one connection")),
    Measure(APPEND_ONE_STREAM, "streams", (SEMEL, REFERENCE), (1, 64), is_delayed=True),
    Measure(APPEND_64_STREAMS, "streams", (SEMEL, REFERENCE), is_delayed=True),
    *(Measure(name, "streams", (SEMEL, REFERENCE), (1, 4)) for name in (CATCH_UP, CATCH_UP_BATCHES)),
    *(Measure(name, "streams", (SEMEL, REFERENCE), (READERS,)) for name in TAILS),
    Measure(EVENTS_SINGLE, "events", ("Semel", "Insieme"), (32,), is_delayed=True),
    Measure(EVENTS_BATCH, "events", ("Semel", "Insieme"), (4,), is_delayed=True),
    Measure(LEDGER_SINGLE, "ledger", ("Semel",), is_delayed=True),
    Measure(LEDGER_BULK, "ledger", ("Semel",), (16,)),
    Measure(LEDGER_MANY, "ledger", ("Semel",), (16,)),
    Measure(
        APPEND_ON_POSTGRES,
        "postgres",
        ("Semel on PostgreSQL", "FastAPI and PostgreSQL"),
        (64, 256),
        is_delayed=True,
    ),
)
GROUPS = tuple(dict.fromkeys(measure.group for measure in MEASURES))


class Point(NamedTuple):
    """What a figure belongs to; a share of 0 is a closed loop."""

    measure: str
    candidate: str
    callers: int
    delay_ms: float = 0.0
    share: float = 0.0
