"""The plants: bugs that break a promise of README each, planted by function.

Here are those of the five surfaces and of the engine; `more_plants` has those of the library, the stores and access.
A plant replaces a whole function, where possible by a wrapper, so that it outlives changes inside of the function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from tests.mutants.more_plants import MORE
from tests.mutants.plant import Plant, Unwritten, always, answered, asked, instead, the

STREAMS_RULES = "semel.surfaces.streams.rules"
EVENTS_RULES = "semel.surfaces.events.rules"
JOBS_RULES = "semel.surfaces.jobs.rules"
LEDGER_RULES = "semel.surfaces.ledger.rules"
DELTAS_RULES = "semel.surfaces.deltas.rules"


def replayed(verdict: Any, *_: Any) -> Any:
    """A mismatch that is told as a replay."""
    return verdict.__class__.REPLAY if verdict.name == "MISMATCH" else verdict


# -- Streams -----------------------------------------------------------------------------------------------------------


def key_of_any_life(view: Any, command: Any, stream: Any) -> Any:
    receipt = the("semel.surfaces.streams.tables:RECEIPT")
    return None if command.key is None else view.get(receipt, (command.scope, command.key))


def closed_for_closing_only(original: Any) -> Any:
    return lambda case: None if case.command.content.data else original(case)


def with_gaps(place: Any, *_: Any) -> Any:
    epoch, seq = place
    return (epoch, seq.__class__.NEXT) if (epoch.name, seq.name) == ("SAME", "AHEAD") else place


def uncounted(row: Any, view: Any, stream: Any, source: Any, *_: Any) -> Any:
    view.put(the("semel.surfaces.streams.tables:STREAM"), source)
    return row


def from_the_front(rows: Any, stream: Any, offset: Any, now_ms: int) -> tuple[Any, ...]:
    is_behind = 0 <= offset.position < (stream.floor or 0)
    earliest = the(f"{STREAMS_RULES}.offsets:EARLIEST")
    return rows, stream, earliest if is_behind else offset, now_ms


def proof_of_the_latest(view: Any, proof: Any, *rest: Any) -> tuple[Any, ...]:
    row = view.get(the("semel.surfaces.streams.subscriptions.tables:SUBSCRIPTION"), (proof.name,))
    if row is not None:
        generation = row.generation
        proof = proof._replace(token_generation=generation, generation=generation, wake_id=row.wake_id)
    return (view, proof, *rest)


STREAMS = (
    Plant(
        "streams-other-body-gets-the-first-answer",
        "a reused key with another body is refused",
        "semel.kernel.verdict:judge",
        answered(replayed),
        ("tests/streams/promises/test_idempotency_key.py",),
    ),
    Plant(
        "streams-key-outlives-its-stream",
        "a key belongs to one life of a stream",
        f"{STREAMS_RULES}.append:_receipt",
        instead(key_of_any_life),
        ("tests/streams/promises/test_idempotency_key.py",),
    ),
    Plant(
        "streams-closed-stream-takes-content",
        "a closed stream takes no more content",
        f"{STREAMS_RULES}.append:_closed",
        closed_for_closing_only,
        ("tests/streams/promises/test_producers.py",),
    ),
    Plant(
        "streams-producer-leaves-a-gap",
        "a producer's sequence has no hole",
        "semel.kernel.producer:_place",
        answered(with_gaps),
        ("tests/kernel/test_producers.py",),
    ),
    Plant(
        "streams-fork-not-counted-at-its-source",
        "a stream with forks is kept for them when it is deleted",
        f"{STREAMS_RULES}.forks:add_fork",
        answered(uncounted),
        ("tests/streams/promises/test_forks.py",),
    ),
    Plant(
        "streams-slow-reader-not-told",
        "a reader whose content was dropped by retention is told",
        f"{STREAMS_RULES}.offsets:position_of",
        asked(from_the_front),
        ("tests/streams/promises/test_retention.py",),
    ),
    Plant(
        "streams-ended-wake-acknowledges",
        "a call of an earlier wake of a subscription is fenced",
        "semel.surfaces.streams.subscriptions.rules.leases:_proved",
        asked(proof_of_the_latest),
        ("tests/streams/subscriptions/test_pull_wake.py",),
    ),
)


# -- Events ------------------------------------------------------------------------------------------------------------


def with_known_digest(view: Any, item: Any) -> tuple[Any, ...]:
    row = view.get(the("semel.surfaces.events.tables:EVENT_ID"), (item.key,))
    return view, item if row is None else item._replace(digest=row.digest)


def watermark_first(original: Any) -> Any:
    mismatch = f"{EVENTS_RULES}.event_log:_mismatch"
    return lambda view, item: the(mismatch)(view, item) or original(view, item)


def lowered(result: Any, view: Any, command: Any) -> Any:
    partition = the("semel.surfaces.events.tables:EVENT_PARTITION")
    for name in dict.fromkeys(name for _, names in command.places for name in names):
        view.put(partition, view.get(partition, (name,))._replace(last_id=0))
    return result


def skipping(page: Any, *_: Any) -> Any:
    return page._replace(next_since=page.next_since + 1) if page.has_more else page


def from_the_feed(self: Any, watermark: int, *rest: Any) -> tuple[Any, ...]:
    return (self, max(watermark, self._feed.position), *rest)


EVENTS = (
    Plant(
        "events-other-content-called-committed",
        "an id that is committed with other content is refused",
        f"{EVENTS_RULES}.event_log:_known",
        asked(with_known_digest),
        ("tests/events/promises/test_equality.py",),
    ),
    Plant(
        "events-expected-watermark-ignored",
        "an event that expects another watermark of its partitions is refused",
        f"{EVENTS_RULES}.event_log:_mismatch",
        always(None),
        ("tests/events/rules/test_if_watermark.py",),
    ),
    Plant(
        "events-retry-refused-for-its-watermark",
        "the retry of a committed event gets its first answer, whatever the watermark is",
        f"{EVENTS_RULES}.event_log:_known",
        watermark_first,
        ("tests/events/rules/test_if_watermark.py",),
    ),
    Plant(
        "events-digest-without-partitions",
        "the same id with other partitions is another event",
        f"{EVENTS_RULES}.event_log:digest_of",
        asked(lambda partitions, event: (b"[]", event)),
        ("tests/events/rules/test_digest.py",),
    ),
    Plant(
        "events-pruning-forgets-the-watermark",
        "the watermark of a partition is that of its last event, pruned or not",
        f"{EVENTS_RULES}.event_log:prune",
        answered(lowered),
        ("tests/events/rules/test_if_watermark.py",),
    ),
    Plant(
        "events-page-skips-the-next-event",
        "a cursor never skips an event",
        "semel.surfaces.events.reading:history",
        answered(skipping),
        ("tests/events/promises/test_sync.py",),
    ),
    Plant(
        "events-seam-skips",
        "history and live events join without a gap",
        "semel.surfaces.events.subscriber:EventSubscriber.subscribe",
        asked(from_the_feed),
        ("tests/events/rules/test_seam.py",),
    ),
)


# -- Jobs --------------------------------------------------------------------------------------------------------------


REAPED = 4
"""How the end of a lease that the reaper took back is stored."""


def any_token(secret: bytes, job: Any, given: bytes | None) -> bool:
    return bool(given) and job.epoch > 0


def with_its_report(secret: bytes, job: Any, command: Any) -> tuple[Any, ...]:
    return secret, job._replace(report=command.digest), command


def unless_reaped(original: Any) -> Any:
    return lambda counters, job: None if job.ended_by == REAPED else original(counters, job)


JOBS = (
    Plant(
        "jobs-late-worker-believed",
        "a worker that lost its lease cannot overwrite the outcome of a job",
        f"{JOBS_RULES}.leases:is_current",
        instead(any_token),
        ("tests/jobs/promises/test_leases.py",),
    ),
    Plant(
        "jobs-second-outcome-taken-for-the-first",
        "a job has one outcome: the first that was accepted",
        f"{JOBS_RULES}.leases:_repeated",
        asked(with_its_report),
        ("tests/jobs/promises/test_leases.py",),
    ),
    Plant(
        "jobs-other-payload-gets-the-first-job",
        "a key that was used for another job is refused",
        f"{JOBS_RULES}.idempotency:verdict_on",
        answered(replayed),
        ("tests/jobs/promises/test_submit.py",),
    ),
    Plant(
        "jobs-key-makes-a-second-job",
        "a job is queued once for each key",
        f"{JOBS_RULES}.idempotency:verdict_on",
        answered(lambda verdict, *_: verdict.__class__.FRESH if verdict.name == "REPLAY" else verdict),
        ("tests/jobs/promises/test_submit.py",),
    ),
    Plant(
        "jobs-cancel-forgotten",
        "a cancelled job ends at its next failure, deferral or lost lease",
        f"{JOBS_RULES}.states:transition",
        asked(lambda job, *rest: (job._replace(cancel=0), *rest)),
        ("tests/jobs/promises/test_cancellations.py",),
    ),
    Plant(
        "jobs-more-runs-than-allowed",
        "a job runs at most max_attempts times",
        f"{JOBS_RULES}.states:transition",
        asked(lambda job, *rest: (job._replace(max_attempts=job.max_attempts + 1), *rest)),
        ("tests/jobs/promises/test_retries.py",),
    ),
    Plant(
        "jobs-reaped-member-not-counted",
        "every end of a member of a group counts, in its own commit",
        f"{JOBS_RULES}.groups:count_end",
        unless_reaped,
        ("tests/jobs/rules/test_groups.py",),
    ),
    Plant(
        "jobs-run-beyond-its-limit",
        "no heartbeat extends a lease beyond the time limit of its run",
        f"{JOBS_RULES}.reaper:in_time",
        instead(lambda job, due_at: due_at),
        ("tests/jobs/model/test_model.py",),
    ),
)


# -- Ledger ------------------------------------------------------------------------------------------------------------


def with_equal_operations(case: Any) -> tuple[Any, ...]:
    by_key, by_sequence = (
        None if past is None else past._replace(hash=case.hash) for past in (case.by_key, case.by_sequence)
    )
    return (case._replace(by_key=by_key, by_sequence=by_sequence),)


def unlinked(committed: Any, *_: Any) -> Any:
    return committed._replace(header=committed.header._replace(previous_hash=bytes(32)))


def one_by_one(original: Any) -> Any:
    """Operations whose condition fails are left out, and the others are carried out."""

    def broken(operations: Any, *rest: Any) -> None:
        for operation in operations:
            with suppress(the(f"{LEDGER_RULES}.state:ConditionFailedError")):
                original([operation], *rest)

    return broken


def without_fence(original: Any) -> Any:
    return lambda org, *rest: original(org._replace(fence=0), *rest)


LEDGER = (
    Plant(
        "ledger-gap-executed",
        "a ledger's sequence has no gap",
        f"{LEDGER_RULES}.idempotency:WriteCase.is_next",
        instead(lambda case: case.sequence is not None and case.sequence > case.last),
        ("tests/ledger/promises/test_rows.py",),
    ),
    Plant(
        "ledger-other-operations-replayed",
        "a sequence or a key that was used for other operations is refused",
        f"{LEDGER_RULES}.idempotency:find_rule",
        asked(with_equal_operations),
        ("tests/ledger/promises/test_rows.py",),
    ),
    Plant(
        "ledger-key-executed-again",
        "a remembered key is not executed again",
        f"{LEDGER_RULES}.commits:_key_row",
        always(None),
        ("tests/ledger/promises/test_rows.py",),
    ),
    Plant(
        "ledger-chain-unlinked",
        "each block names the hash of the one before",
        f"{LEDGER_RULES}.commits:build_block",
        answered(unlinked),
        ("tests/ledger/promises/test_chain.py",),
    ),
    Plant(
        "ledger-half-a-transaction",
        "a transaction is executed completely or not at all",
        f"{LEDGER_RULES}.state:apply_operations",
        one_by_one,
        ("tests/ledger/promises/test_conditions.py",),
    ),
    Plant(
        "ledger-fence-ignored",
        "an organization that fences its clients forgets none of them",
        f"{LEDGER_RULES}.group_rows:next_cuts",
        without_fence,
        ("tests/ledger/promises/test_eviction.py",),
    ),
)


# -- Deltas ------------------------------------------------------------------------------------------------------------


def later_arrival_wins(original: Any) -> Any:
    def broken(one: Any, other: Any) -> Any:
        return True if other is not None and one.hlc == other.hlc else original(one, other)

    return broken


def with_deleted_columns(original: Any) -> Any:
    def broken(state: Any, stamp: Any) -> Any:
        before = dict(state.cells)
        change = original(state, stamp)
        state.cells.update(before)
        return change

    return broken


def from_the_cut(reading: Any, asker: Any, begun: Any, limit: int) -> tuple[Any, ...]:
    start = begun.start._replace(start=max(begun.start.start, asker.gateway.cut))
    return reading, asker, begun._replace(start=start), limit


def shown_when_sent(page: Any, asker: Any, *rest: Any) -> Any:
    touches: Callable[..., Any] = the(f"{DELTAS_RULES}.replicas:touches_of")
    return page._replace(touches=touches(asker.replica, asker.row, page.cursor, rest[-1])) if page.touches else page


DELTAS = (
    Plant(
        "deltas-tie-decided-by-arrival",
        "devices that have the same deltas have the same rows, in whatever order they arrived",
        f"{DELTAS_RULES}.last_writer_wins:is_after",
        later_arrival_wins,
        ("tests/deltas/rules/test_rows.py",),
    ),
    Plant(
        "deltas-deleted-columns-come-back",
        "a value older than the last tombstone is gone",
        f"{DELTAS_RULES}.last_writer_wins:_delete",
        with_deleted_columns,
        ("tests/deltas/rules/test_rows.py",),
    ),
    Plant(
        "deltas-fast-clock-taken",
        "a clock more than 5 seconds ahead is refused",
        f"{DELTAS_RULES}.push:_drift_flaws",
        always([]),
        ("tests/deltas/rules/test_clocks.py",),
    ),
    Plant(
        "deltas-cut-log-read-in-silence",
        "a cursor before the cut of the log is refused",
        "semel.surfaces.deltas.reading:_page",
        asked(from_the_cut),
        ("tests/deltas/rules/test_retention.py",),
    ),
    Plant(
        "deltas-lost-write-not-corrected",
        "the author of a write that lost is told who won",
        "semel.surfaces.deltas.plain_dialect:_correction",
        always(None),
        ("tests/deltas/binary/test_plain_dialect.py",),
    ),
    Plant(
        "deltas-sent-counts-as-shown",
        "a page that was sent and not shown is outstanding",
        "semel.surfaces.deltas.reading:_noted",
        answered(shown_when_sent),
        ("tests/deltas/model/test_model.py",),
    ),
)


# -- Engine ------------------------------------------------------------------------------------------------------------

_here = threading.local()
_seen: WeakSet[Any] = WeakSet()


def delivering(original: Any) -> Any:
    """A batch whose callers can be answered before its commit; `told_early` answers them."""

    def broken(self: Any, batch: Any, light: Any) -> Generator[Any, Any, Any]:
        _here.deliver = self._deliver
        return (yield from original(self, batch, light))

    return broken


def told_early(original: Any) -> Any:
    def broken(self: Any, commit: Any) -> Any:
        deliver = getattr(_here, "deliver", None)
        if deliver is not None:
            deliver(self)
        return original(self, commit)

    return broken


def undone_but_one(self: Any, mark: tuple[int, int]) -> tuple[Any, ...]:
    return self, (min(mark[0] + 1, len(self._journal)), mark[1])


def cached_early(result: Any, view: Any, command: Any, policy: Any, now: Any, cache: Any, *_: Any) -> Any:
    cache.take(result.answer.tree)
    return result


def first_part_only(original: Any) -> Any:
    """Of a write that is decided in parts, the first one is written."""

    def broken(self: Any, submission: Any) -> Any:
        tx = self._tx
        if tx in _seen:
            self._tx = Unwritten(tx)
        said = original(self, submission)
        if said is not None:
            _seen.add(tx)
        return said

    return broken


ENGINE = (
    Plant(
        "engine-answers-before-commit",
        "nobody hears of a write before it is on disk",
        "semel.engine.batch_runner:BatchRunner._try",
        delivering,
        ("tests/engine/test_engine.py",),
        also=(("semel.engine.group_commit:BatchResult.timed", told_early),),
    ),
    Plant(
        "engine-undo-keeps-a-change",
        "a refusal stores nothing, also beside others in one batch",
        "semel.engine.view:BatchView.undo",
        asked(undone_but_one),
        ("tests/engine/test_batch.py",),
    ),
    Plant(
        "engine-cache-filled-before-the-commit",
        "what is kept in memory is what is on disk, also after a rollback",
        "semel.surfaces.ledger.rules.write:write_many",
        answered(cached_early),
        ("tests/ledger/rules/test_page_cache.py",),
    ),
    Plant(
        "engine-later-parts-dropped",
        "a write that is decided in parts is stored as a whole",
        "semel.engine.batch:_Batch.decide_part",
        first_part_only,
        ("tests/engine/test_parts.py",),
    ),
    Plant(
        "engine-numbers-out-of-order",
        "writes of one sequence are decided in the order of their numbers",
        "semel.engine.batch_order:in_order",
        instead(list),
        ("tests/engine/test_batch.py",),
    ),
)


PLANTS: tuple[Plant, ...] = (*STREAMS, *EVENTS, *JOBS, *LEDGER, *DELTAS, *ENGINE, *MORE)
