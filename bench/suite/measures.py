"""What `make bench` measures, by group, and the ratios that the project has set itself."""

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
DELTAS = "deltas, batch 100"
LEDGER_SINGLE, LEDGER_BULK = "ledger, 1 operation", "ledger, 100 operations"
LEDGER_MANY = "ledger, many transactions"
"""Semel: 100 a request. 0.1.0 has no such request: 16 a connection are under way."""

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
        ("Semel", "Redis", "NATS JetStream", "FastAPI and PostgreSQL", "the bare host", "Semel 0.1.0"),
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
            ("Semel", "Semel, one connection", "BullMQ, one connection", "BullMQ", "Procrastinate", "DBOS"),
            is_delayed=name == JOB_SUBMIT,
        )
        for name in (JOB_SUBMIT, JOB_KNOWN)
    ),
    Measure(JOB_BULK, "jobs", ("Semel", "BullMQ", "Procrastinate", "DBOS"), (4,)),
    Measure(JOB_CYCLE, "jobs", ("Semel", "Semel, the SDK's worker", "BullMQ, one connection", "Procrastinate", "DBOS")),
    Measure(JOB_CYCLE_MANY, "jobs", ("Semel", "BullMQ, one connection")),
    Measure(APPEND_ONE_STREAM, "streams", (SEMEL, REFERENCE), (1, 64), is_delayed=True),
    Measure(APPEND_64_STREAMS, "streams", (SEMEL, REFERENCE), is_delayed=True),
    *(Measure(name, "streams", (SEMEL, REFERENCE), (1, 4)) for name in (CATCH_UP, CATCH_UP_BATCHES)),
    *(Measure(name, "streams", (SEMEL, REFERENCE), (READERS,)) for name in TAILS),
    Measure(EVENTS_SINGLE, "events", ("Semel", "Insieme"), (32,), is_delayed=True),
    Measure(EVENTS_BATCH, "events", ("Semel", "Insieme"), (4,), is_delayed=True),
    Measure(DELTAS, "deltas", ("Semel",), (8,), is_delayed=True),
    Measure(LEDGER_SINGLE, "ledger", ("Semel", "Semel 0.1.0"), is_delayed=True),
    Measure(LEDGER_BULK, "ledger", ("Semel", "Semel 0.1.0"), (16,)),
    Measure(LEDGER_MANY, "ledger", ("Semel", "Semel 0.1.0"), (16,)),
    Measure(
        APPEND_ON_POSTGRES,
        "postgres",
        ("Semel on PostgreSQL", "BEGIN, INSERT, COMMIT", "FastAPI and PostgreSQL"),
        (64, 256),
        is_delayed=True,
    ),
)
GROUPS = tuple(dict.fromkeys(measure.group for measure in MEASURES))
GROWTH = "growth"
"""Measured by itself: the rate of keyed appends as receipts add up."""


class Point(NamedTuple):
    """What a figure belongs to; a share of 0 is a closed loop."""

    measure: str
    candidate: str
    callers: int
    delay_ms: float = 0.0
    share: float = 0.0


class Target(NamedTuple):
    """A ratio that is to be reached: of the rates of two points, or of another figure, of which less is better."""

    over: Point
    under: Point
    bound: float
    figure: str = "per_second"

    @property
    def is_least(self) -> bool:
        """Whether the ratio is to be at least as high as the bound, and not at most."""
        return self.figure == "per_second"


def _appends(callers: int, least: float) -> Target:
    return Target(Point(APPEND_RANDOM, "Semel", callers), Point(APPEND_RANDOM, "Redis", callers), least)


def _jobs(measure: str, peer: str, least: float) -> Target:
    return Target(Point(measure, "Semel", 64), Point(measure, peer, 64), least)


def _events(measure: str, callers: int, delay_ms: float, least: float) -> Target:
    return Target(Point(measure, "Semel", callers, delay_ms), Point(measure, "Insieme", callers, delay_ms), least)


def _streams(measure: str, callers: int, bound: float, figure: str = "per_second") -> Target:
    return Target(Point(measure, SEMEL, callers), Point(measure, REFERENCE, callers), bound, figure)


TARGETS = (
    _appends(1, 0.6),
    _appends(16, 1.0),
    _appends(64, 0.85),
    _appends(256, 0.8),
    Target(Point(APPEND_RANDOM, "Semel", 64), Point(APPEND_ORDERED, "Semel", 64), 0.9),
    Target(Point(FILLED_RANDOM, "Semel, 5 million receipts", 64), Point(FILLED_RANDOM, "Semel", 64), 0.9),
    Target(
        Point(FILLED_RANDOM, "Semel, 5 million receipts", 64),
        Point(FILLED_ORDERED, "Semel, 5 million receipts", 64),
        0.9,
    ),
    Target(Point(APPEND_KNOWN, "Semel", 64), Point(APPEND_KNOWN, "the bare host", 64), 0.6),
    Target(Point(APPEND_RANDOM, "Semel", 64), Point(APPEND_PLAIN, "Semel", 64), 0.85),
    _jobs(JOB_SUBMIT, "BullMQ, one connection", 0.9),
    _jobs(JOB_SUBMIT, "BullMQ", 1.2),
    _jobs(JOB_KNOWN, "BullMQ, one connection", 0.8),
    _jobs(JOB_KNOWN, "BullMQ", 1.5),
    _jobs(JOB_CYCLE, "BullMQ, one connection", 1.0),
    _jobs(JOB_CYCLE_MANY, "BullMQ, one connection", 1.2),
    _events(EVENTS_SINGLE, 32, 0.0, 4.0),
    _events(EVENTS_BATCH, 4, 0.0, 10.0),
    _events(EVENTS_SINGLE, 32, 1.0, 8.0),
    _events(EVENTS_BATCH, 4, 1.0, 30.0),
    Target(Point(LEDGER_SINGLE, "Semel", 64), Point(LEDGER_SINGLE, "Semel 0.1.0", 64), 2.5),
    Target(Point(LEDGER_MANY, "Semel", 16), Point(LEDGER_MANY, "Semel 0.1.0", 16), 8.0),
    Target(
        Point(APPEND_ON_POSTGRES, "Semel on PostgreSQL", 256),
        Point(APPEND_ON_POSTGRES, "BEGIN, INSERT, COMMIT", 256),
        3.0,
    ),
    Target(Point(APPEND_AT_RATE, "Semel", 64, share=0.5), Point(APPEND_AT_RATE, "Redis", 64, share=0.5), 1.5, "p99_ms"),
    _streams(APPEND_ONE_STREAM, 1, 1.0),
    _streams(APPEND_ONE_STREAM, 64, 10.0),
    _streams(APPEND_64_STREAMS, 64, 10.0),
    *(_streams(measure, callers, 1.0) for measure in (CATCH_UP, CATCH_UP_BATCHES) for callers in (1, 4)),
    *(_streams(measure, READERS, 1.0, figure) for measure in TAILS for figure in ("p50_ms", "p99_ms", "peak_mib")),
)
