"""Everything that `make bench` measures: how it is started, what drives it, and when its answers are durable."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from bench.jobs_measures import PARAMS
from bench.suite import starts
from bench.suite.measures import (
    APPEND_64_STREAMS,
    APPEND_AT_RATE,
    APPEND_KNOWN,
    APPEND_ON_POSTGRES,
    APPEND_ONE_STREAM,
    APPEND_ORDERED,
    APPEND_PLAIN,
    APPEND_RANDOM,
    CATCH_UP,
    CATCH_UP_BATCHES,
    EVENTS_BATCH,
    EVENTS_SINGLE,
    FILLED_ORDERED,
    FILLED_RANDOM,
    JOB_BULK,
    JOB_CYCLE,
    JOB_CYCLE_MANY,
    JOB_KNOWN,
    JOB_SUBMIT,
    LEDGER_BULK,
    LEDGER_MANY,
    LEDGER_SINGLE,
    READS,
    REFERENCE,
    SEMEL,
    TAIL,
    TAIL_10_STREAMS,
    TAIL_SLOW,
)
from bench.suite.servers import ROOT, Place, Served

BULLMQ = ROOT / "bench" / "bullmq"


class Ask(NamedTuple):
    """One measurement as a driver is asked for it."""

    measure: str
    connections: int
    seconds: float
    warm: float
    rate: float | None = None
    jobs: int = 30_000


class Candidate(NamedTuple):
    """A row of the tables."""

    name: str
    durability: str
    start: Callable[[Place], AbstractContextManager[Served]]
    load: Mapping[str, str]
    """By measure, the options of the load generator, or of the candidate's own driver."""
    driver: Callable[[Candidate, Place, Served, Ask], list[str]]
    is_shared: bool = False
    """One connection carries the requests of all callers."""
    delay: str = "LD_PRELOAD"
    """How its syncs are made slower; or why that cannot be done, as a sentence that begins with `not`."""

    @property
    def can_be_delayed(self) -> bool:
        """Whether its syncs can be made slower."""
        return not self.delay.startswith("not")


def generator(candidate: Candidate, place: Place, served: Served, ask: Ask) -> list[str]:
    """The load generators of this folder."""
    if ask.measure in READS:
        command = [sys.executable, "-m", "bench.load_reads", "--port", str(served.port)]
        return [*command, *candidate.load[ask.measure].split(), "--connections", str(ask.connections), *window(ask)]
    connections, in_flight = (1, ask.connections) if candidate.is_shared else (ask.connections, 1)
    command = [sys.executable, "-m", "bench.load", "--port", str(served.port), *candidate.load[ask.measure].split()]
    command += ["--connections", str(connections), "--in-flight", str(in_flight), "--jobs", str(ask.jobs)]
    command += [] if ask.rate is None else ["--rate", f"{ask.rate:.1f}"]
    return [*command, *window(ask)]


def window(ask: Ask) -> list[str]:
    """The options that every driver has."""
    return ["--warm", str(ask.warm), "--window", str(ask.seconds)]


def bullmq(candidate: Candidate, place: Place, served: Served, ask: Ask) -> list[str]:
    """BullMQ's own client, in Node.js."""
    command = [place.tools.node, str(BULLMQ / "load.mjs"), "--port", str(served.port), "--params", json.dumps(PARAMS)]
    connections = 1 if candidate.is_shared else ask.connections
    command += ["--connections", str(connections), "--at-once", str(ask.connections), "--jobs", str(ask.jobs)]
    return [*command, *candidate.load[ask.measure].split(), *window(ask)]


def sdk_worker(candidate: Candidate, place: Place, served: Served, ask: Ask) -> list[str]:
    """The worker of Semel's own SDK, with a function that does nothing."""
    command = [sys.executable, "-m", "bench.jobs_worker", "--port", str(served.port), "--jobs", str(ask.jobs)]
    return [*command, "--at-once", str(ask.connections), *candidate.load[ask.measure].split(), *window(ask)]


_APPENDS = {
    APPEND_RANDOM: "--put --keys random",
    APPEND_AT_RATE: "--put --keys random",
    APPEND_ORDERED: "--put --keys ordered",
    APPEND_PLAIN: "--put --keys none",
    APPEND_KNOWN: "--put --keys repeated",
}
_FILLED = {FILLED_RANDOM: "--put --keys random", FILLED_ORDERED: "--put --keys ordered"}
_STREAMS = {
    APPEND_ONE_STREAM: "--put --keys none",
    APPEND_64_STREAMS: "--put --keys none --streams 64",
    CATCH_UP: "--kind catch-up --appends 5000",
    CATCH_UP_BATCHES: "--kind catch-up --appends 400 --batch 100",
    TAIL_SLOW: "--kind tail --rate 1",
    TAIL_10_STREAMS: "--kind tail --rate 20 --streams 10",
    TAIL: "--kind tail --rate 20",
}
_JOBS = {
    JOB_SUBMIT: "--kind job",
    JOB_KNOWN: "--kind job --keys repeated",
    JOB_BULK: "--kind jobs --batch 100",
    JOB_CYCLE: "--kind cycle --batch 1",
    JOB_CYCLE_MANY: "--kind cycle --batch 16",
}
_EVENTS = {EVENTS_SINGLE: "--kind event --batch 1", EVENTS_BATCH: "--kind event --batch 100"}
_LEDGER = {LEDGER_SINGLE: "--kind ledger --prepared 60000", LEDGER_BULK: "--kind ledger --batch 100 --prepared 200000"}
_MANY = {LEDGER_MANY: "--kind ledger-bulk --batch 100 --prepared 200000"}
_CYCLES = {JOB_CYCLE: "--measure cycle", JOB_CYCLE_MANY: "--measure cycle"}
_SUBMITS = {JOB_SUBMIT: "--measure submit", JOB_KNOWN: "--measure duplicate"}
_PEER_JOBS = _SUBMITS | {JOB_BULK: "--measure bulk"}

SEMEL_SHARED = "Semel, one connection"
SEMEL_FILLED = "Semel, 5 million receipts"
SEMEL_WORKER = "Semel, the SDK's worker"
SEMEL_ON_POSTGRES, BARE = "Semel on PostgreSQL", "the bare host"
_SQLITE = "SQLite in WAL mode, synchronous=FULL: one fdatasync a batch before any answer of it"
_COMMIT = "PostgreSQL 18, fsync=on, synchronous_commit=on: the log is synced at each commit, before the answer"
_AOF = "append-only file, appendfsync always: synced once a pass of its loop, before the answers"
_OURS = _APPENDS | _FILLED | _STREAMS | _JOBS | _EVENTS | _LEDGER | _MANY

CANDIDATES = {
    one.name: one
    for one in (
        Candidate(
            SEMEL, _SQLITE, starts.semel, _APPENDS | _FILLED | _STREAMS | _JOBS | _EVENTS | _LEDGER | _MANY, generator
        ),
        Candidate(SEMEL_FILLED, _SQLITE, starts.semel_filled, _FILLED, generator),
        Candidate(
            SEMEL_SHARED, _SQLITE, starts.semel, {name: _JOBS[name] for name in _SUBMITS}, generator, is_shared=True
        ),
        Candidate(SEMEL_WORKER, _SQLITE, starts.semel, {JOB_CYCLE: "--measure cycle"}, sdk_worker),
        Candidate(
            SEMEL_ON_POSTGRES, _COMMIT, starts.semel_on_postgres, {APPEND_ON_POSTGRES: "--put --streams 16"}, generator
        ),
        Candidate(
            BARE,
            "none: nothing is stored; Semel's HTTP host answering at once, the ceiling of any append over HTTP",
            starts.bare,
            dict.fromkeys(_APPENDS, ""),
            generator,
            delay="not delayed: it syncs nothing",
        ),
        Candidate(
            "Redis",
            f"{_AOF}; one Lua script an append, with SET NX, a TTL of a day and XADD",
            starts.redis,
            {
                APPEND_RANDOM: "--kind redis --keys random",
                APPEND_AT_RATE: "--kind redis --keys random",
                APPEND_ORDERED: "--kind redis --keys ordered",
                APPEND_PLAIN: "--kind redis --keys none",
                APPEND_KNOWN: "--kind redis --keys repeated",
            },
            generator,
        ),
        Candidate(
            "NATS JetStream",
            "file storage, sync_interval always: synced at each message, before its acknowledgement",
            starts.nats,
            {
                APPEND_RANDOM: "--kind nats --keys random",
                APPEND_PLAIN: "--kind nats --keys none",
                APPEND_KNOWN: "--kind nats --keys repeated",
            },
            generator,
            delay="not delayed: a program in Go calls the kernel itself",
        ),
        Candidate(
            "FastAPI and PostgreSQL",
            f"{_COMMIT}; INSERT ... ON CONFLICT, no comparison of a repeated key",
            starts.fastapi,
            {APPEND_RANDOM: "", APPEND_KNOWN: "--keys repeated", APPEND_ON_POSTGRES: "--streams 16"},
            generator,
        ),
        Candidate(
            REFERENCE,
            "file storage: one fdatasync of the stream's file for each append, before its answer; appends to a stream "
            "run one after the other; LMDB syncs its index of streams besides; no keys",
            starts.streams_reference,
            _STREAMS,
            generator,
        ),
        Candidate(
            "BullMQ, one connection",
            f"{_AOF}; a key is a job id",
            starts.redis,
            _PEER_JOBS | _CYCLES,
            bullmq,
            is_shared=True,
        ),
        Candidate("BullMQ", f"{_AOF}; a key is a job id", starts.redis, _PEER_JOBS, bullmq),
        Candidate(
            "Insieme",
            "Node's SQLite in WAL mode, synchronous=FULL, one transaction an event: a sync for each event",
            starts.insieme,
            _EVENTS,
            generator,
        ),
    )
}
