"""The tables of all metrics: names, kinds and labels from a server, words from here; and of their names in JSON.

A metric without words here has its help text. A test fails if a name here is no metric.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.namespaces import build_context
from semel.server.ops.metrics import AUTH_COUNTS
from semel.server.settings_loader import make_settings
from semel.surfaces.jobs.metrics import COUNTS, GAUGES, HITS

NOTES: Mapping[str, str] = {
    "semel_access_lines_total": "lines in the access log and the slow log",
    "semel_access_lost_lines_total": "lines lost because the disk did not keep up",
    "semel_access_write_errors_total": "failed writes of these logs, which are retried",
    "semel_audit_lines_total": "lines written to the [audit log](../operating/access.md)",
    "semel_audit_lost_lines_total": "audit lines lost because too many waited for the disk; **alert on any**",
    "semel_audit_write_errors_total": "failed writes of the audit log, which are retried; **alert on any**",
    "semel_auth_total": (
        "credentials checked, by `outcome`: `active`, `next` (the successor in a rotation), `fail`, "
        "`retired_token` (the predecessor after a rotation); **alert on** a rising rate of the last two"
    ),
    "semel_backup_age_seconds": (
        "SQLite: time since the instant of the last [backup](../operating/backup.md); no value before the first; "
        "**alert when** it is missing or above your interval"
    ),
    "semel_build_info": "always 1; the labels have the versions of Semel and Python and the kind of store",
    "semel_connections_refused_total": (
        "connections refused, by `reason`: `connections` (as many as allowed are open), `address` (as many of "
        "one address), `descriptors` (the process is out of file descriptors; **alert on any**, and raise its "
        "limit)"
    ),
    "semel_writes_dropped_retries_total": (
        "retries that [the life of a write](../operating/observe.md) does not count, because too many came at once"
    ),
    "semel_writes_noted_retries_total": "retries that [the life of a write](../operating/observe.md) counts",
    "semel_deltas_answers_bytes": (
        "entries that clients have not read yet; at the [limit](settings.md#limits-of-deltas) pulls are refused"
    ),
    "semel_deltas_checkpoints_bytes": "files of checkpoints on the disk",
    "semel_deltas_entries_given_total": "entries given to clients by pulls, broadcasts and checkpoints",
    "semel_deltas_pushed_total": (
        "acknowledged deltas, by `outcome`: `new`, `duplicate` (known before; stored and delivered once)"
    ),
    "semel_deltas_refused_total": (
        "refused calls, by `code` ([errors](errors.md)); **alert on** `INTERNAL_ERROR`, and on lasting `CLOCK_DRIFT`: "
        "a client's clock is wrong"
    ),
    "semel_deltas_sockets": "open WebSockets of deltas",
    "semel_deltas_uploads_bytes": "bodies and frames of deltas that arrive in pieces or wait",
    "semel_doubles_prevented_total": (
        "repeated writes that were answered from their receipt, by `surface`: "
        "replays of keys, known events and deltas, duplicates of producers"
    ),
    "semel_engine_batch_seconds": "time of one batch, from lock to answers handed over",
    "semel_engine_batch_writes": "writes in one batch",
    "semel_engine_clock_jumps_total": "forward jumps of the clock",
    "semel_engine_commit_seconds": (
        "time of one COMMIT: on SQLite the write and the sync of the log, on PostgreSQL the trip with the "
        "flush; part of `semel_engine_batch_seconds`"
    ),
    "semel_engine_commits_total": (
        "batches by their end, `kind`: `durable` (synced), `soft` (soft changes alone, not waited for), "
        "`nothing` (only replays and refusals: no sync), `rolled_back`, `unknown`"
    ),
    "semel_engine_deferred_total": (
        "writes put off to the next batch, such as a producer's append that overtook its predecessor"
    ),
    "semel_engine_dropped_total": "writes dropped because their client had disconnected",
    "semel_engine_faults_total": (
        "writes whose decision raised an exception (500); **alert on any**, and look at the log"
    ),
    "semel_engine_oldest_write_seconds": (
        "age of the oldest write that waits for its commit, also in the running batch; 0 when none waits; "
        "**alert when** it is above some seconds"
    ),
    "semel_engine_queue_bytes": "bytes of waiting writes",
    "semel_engine_queue_most_writes": "the most that ever waited since the start",
    "semel_engine_queue_writes": "writes waiting for a commit",
    "semel_engine_reruns_total": "decisions that ran again because rows were missing",
    "semel_engine_share_refusals_total": "writes refused because their caller held its share of the queue",
    "semel_engine_soft_changes": "soft changes not stored yet",
    "semel_engine_store_failures_total": "failures of the store; **alert on any**",
    "semel_engine_writes_total": "writes that went through batches, sweeps among them",
    "semel_events_broadcasts_total": "events sent live, one for each connection that was sent it",
    "semel_events_connections": "open WebSocket connections",
    "semel_events_cursors_ahead_total": (
        "cursors above every event of their epoch: a backup may have been restored without `semel epoch raise`"
    ),
    "semel_events_errors_total": (
        "error messages to WebSocket clients, by `code`; **alert on** `server_error` while the server is not stopping"
    ),
    "semel_events_items_total": (
        "submitted items, by `outcome`: `committed`, `replayed` (known, and answered as the first time), "
        "`rejected`, `not_processed`"
    ),
    "semel_events_live": (
        "connections that follow partitions and keep up; the rest follow nothing, page, or are refilled"
    ),
    "semel_events_resets_total": "cursors of a lost [epoch](../operating/backup.md) that got a reset",
    "semel_events_slow_readers_total": "connections closed because their client did not read",
    "semel_http_connections": "open connections, WebSockets too",
    "semel_http_requests_total": (
        "requests answered, by `surface` (`streams`, `events`, `jobs`, `ledger`, `deltas`, `server`, `none`), "
        "`method`, `status`"
    ),
    "semel_jobs_backpressure": "1 while new jobs are refused because too many wait",
    "semel_jobs_dead": "dead letters",
    "semel_jobs_finished_total": "jobs that ended, by `status`: `completed`, `failed`",
    "semel_jobs_idempotency_collisions_total": (
        "submissions under a key of another payload (409); **alert on any**: a client has a fault"
    ),
    "semel_jobs_idempotency_evicted_total": "keys forgotten before their time for lack of room; **alert on any**",
    "semel_jobs_idempotency_records": "keys that are kept",
    "semel_jobs_idempotent_total": (
        "repeated submissions, by `outcome`: `in_progress`, `completed`, `failed` (the state of the first), "
        "`revived` (a failed job that runs again)"
    ),
    "semel_jobs_inflight": "running jobs",
    "semel_jobs_integrity_total": (
        "results, by `outcome`: `verified`, `missing` (no proof was sent), `fail`; **alert on** `fail`"
    ),
    "semel_jobs_joined_total": (
        "submissions for which the job of an earlier one stands, by `reason`: `unique`, `debounce`"
    ),
    "semel_jobs_lease_fenced_total": "rejected reports under an ended lease",
    "semel_jobs_leases_reaped_total": "expired leases: workers that died, hung, or sent no heartbeat",
    "semel_jobs_offers_lapsed_total": (
        "offers that no worker confirmed: workers that were stalled or cut off while they waited"
    ),
    "semel_jobs_oldest_ready_seconds": "age of the oldest ready job; 0 when there is none",
    "semel_jobs_queue_depth": "jobs that wait for a worker",
    "semel_jobs_rate_limited_total": "claims that got nothing because of the rate limits of queues",
    "semel_jobs_ready": "jobs that a worker could claim",
    "semel_jobs_refused_total": (
        "submissions refused for lack of room, by `reason`: `backpressure` (too many jobs wait), "
        "`idempotency_store_full` (too many keys)"
    ),
    "semel_jobs_retries_total": "failed runs after which the job runs again",
    "semel_jobs_run_seconds": "time from a claim to its outcome",
    "semel_jobs_saturated_total": "claims that got nothing at the limit on running jobs",
    "semel_jobs_scheduled": "jobs that wait for their time",
    "semel_jobs_submit_seconds": "time from a submission to its answer",
    "semel_jobs_submitted_total": "jobs accepted",
    "semel_jobs_timeouts_total": "runs that reached their time limit",
    "semel_jobs_wait_seconds": "time from when a job was ready to its claim",
    "semel_ledger_declined_total": (
        "declined transactions, by `code`; **alert on** `IDEMPOTENCY_KEY_REUSED`: a client has a fault"
    ),
    "semel_ledger_hot_answers": "answers remembered in memory, for replays in full over gRPC",
    "semel_ledger_operations_total": "operations in the committed transactions",
    "semel_ledger_refused_total": (
        "calls refused before any rule was applied, by `code` ([errors](errors.md)); **alert on** `internal`"
    ),
    "semel_ledger_slow_watchers_total": "watchers disconnected because they did not read",
    "semel_ledger_transactions_total": (
        "transactions, by `outcome`: `committed` (each is one block), `replayed` (committed before, "
        "and answered as the first time), `declined`"
    ),
    "semel_ledger_watchers": "clients that follow blocks",
    "semel_live_readers": "live readers waiting",
    "semel_quota_refusals_total": "requests refused at a [quota](../operating/running.md), by `quota`",
    "semel_server_connections": (
        "open connections, by `kind`: `http`, `live` (long polls and event streams that wait), `websocket`, `grpc`"
    ),
    "semel_server_request_seconds": (
        "time from a request to its answer, by `surface` and `wire`: `http`, `websocket` (messages), `grpc` "
        "(calls), `live` (long polls and event streams); of a stream, to its first "
        "bytes"
    ),
    "semel_store_database_bytes": "bytes of the database: the file, or what PostgreSQL says",
    "semel_store_free_disk_bytes": "SQLite: free bytes on the disk of the data folder; **alert when** they are few",
    "semel_store_index_bytes": "SQLite: memory of that index",
    "semel_store_index_keys": (
        "SQLite: idempotency keys in the index, by `place`: `memory`, or `disk` for older ones beyond "
        "[`SEMEL_SQLITE_KEY_INDEX_BYTES`](settings.md)"
    ),
    "semel_store_log_bytes": "bytes of the write-ahead log; PostgreSQL shows them only to members of `pg_monitor`",
    "semel_store_receipts": (
        "receipts that are kept, by `surface`: keys of streams and jobs, ids of events and deltas, keys of "
        "the ledger; on PostgreSQL an estimate"
    ),
    "semel_store_replica_lag_bytes": (
        "PostgreSQL: bytes of the log that the slowest replica has not applied; needs `pg_monitor`"
    ),
    "semel_store_replica_lag_seconds": "PostgreSQL: time by which the slowest replica is behind; needs `pg_monitor`",
    "semel_store_replicas": (
        "PostgreSQL: replicas that are connected to the primary; **alert when** they are fewer than you run"
    ),
    "semel_store_sweep_lag_seconds": "time since the sweeper had freed every expired row; on the node that sweeps",
    "semel_streams_appends_total": (
        "appends, by `outcome`: `stored`, `replay` (of a key), `duplicate` (of a producer, or a second "
        "close), `refused`"
    ),
    "semel_streams_pages_total": (
        "pages for readers, by `source`: `memory` (the hot tail of a stream that is being read, on SQLite) or `store`"
    ),
    "semel_streams_pending_subscriptions": "subscriptions with a wake, a retry or a lease, up to 20,000",
    "semel_streams_tail_bytes": "bytes of [hot tails](settings.md#limits-of-streams) in memory",
    "semel_streams_wakes_total": "wakes of subscriptions, by `type`: `webhook` or `pull-wake`",
    "semel_streams_webhooks_total": "webhook attempts of this node, by `result`: `done`, `accepted` or `failed`",
}
"""What a metric means, where its help text does not say enough."""


def metric_table() -> Iterator[str]:
    """One row for each metric."""
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for family in sorted(exposed(), key=lambda one: (not one.name.startswith("semel_"), one.name)):
        labels = ", ".join(f"`{name}`" for name in labels_of(family))
        meaning = NOTES.get(full_name(family)) or family.documentation.rstrip(".")
        yield f"| `{full_name(family)}` | {family.type} | {labels + ' ' if labels else ''}| {meaning} |"


def json_names() -> Iterator[str]:
    """One row for each further name that the JSON form has, with the series that it stands for."""
    yield "| in JSON | for Prometheus |"
    yield "|---|---|"
    yield f"| `{HITS}` | `semel_jobs_idempotent_total` |"
    for one in (*COUNTS, *AUTH_COUNTS):
        if one.json:
            label = f" with `{one.label[0]}` `{one.label[1]}`" if one.label else ""
            yield f"| {_codes(one.json)} | `{one.series}_total`{label} |"
    for gauge in GAUGES:
        yield f"| {_codes(gauge.json)} | `{gauge.series}` |"


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def full_name(family: Metric) -> str:
    """The name under which it is exposed."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def labels_of(family: Metric) -> Sequence[str]:
    """The names of its labels."""
    return tuple(getattr(family, "_labelnames", ()))


def exposed() -> list[Metric]:
    """All metric families of a server, also those without a sample."""

    async def collect() -> list[Metric]:
        with tempfile.TemporaryDirectory() as folder:
            context = build_context(make_settings(store="memory:", data=folder), nowhere)
            App(context)
            context.metrics.connection_limit = context.connection_limit
            found = list(context.metrics.registry.collect())
            await context.engine.stop()
            context.audit.close()
        return found

    return asyncio.run(collect())
