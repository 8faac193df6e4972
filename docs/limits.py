"""The tables of all limits of `docs/reference/settings.md`: names and effects from here, numbers from the code.

A row has its value from a constant, or, if it names a setting, from the default of that setting. What only divides
the server's own work into steps is not listed: nobody can run into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from docs.settings import UNITS, larger_unit
from semel.cli.command import RETRIES
from semel.cli.source import LARGEST_BYTES
from semel.engine.engine import EngineLimits
from semel.engine.soft_changes import MAX_WAITING
from semel.kernel import keys
from semel.kernel.clock import JUMP_MS
from semel.kernel.hlc import MAX_DRIFT_MS
from semel.kernel.json import canonical
from semel.kernel.json.text import MAX_DEPTH
from semel.kernel.producer import MAX_NUMBER
from semel.server.auth import jwks_url, jwt_claims, jwt_keys, token_wire
from semel.server.grpc import connection as grpc_connection
from semel.server.grpc import flow_control, messages, metadata
from semel.server.grpc import server as grpc_server
from semel.server.http import connection_limit, protocol, reader
from semel.server.ops import audit_log, audit_rate_limit, diagnosis_bundle, logs, rotated_file, token_calls
from semel.server.ops.audit_log import IMPORTANT_LINES, PACED_LINES
from semel.server.quotas import accounts
from semel.server.settings_loader import PREFIX, setting_fields
from semel.server.websocket import connection_limits
from semel.server.writes import find_calls, lookup, retry_table
from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import BUSY_SHARE, LOCK_SHARE
from semel.store.postgres.notify import MAX_WAITING as MAX_HINTS
from semel.store.sqlite import SqliteFileStore
from semel.store.sqlite.write_lock import WAIT_SECONDS
from semel.surfaces.deltas import commands as deltas_refusals
from semel.surfaces.deltas import conversation as deltas_conversation
from semel.surfaces.deltas import limits as deltas
from semel.surfaces.deltas import spool_files
from semel.surfaces.deltas.rules import cursors as deltas_shown
from semel.surfaces.deltas.rules.gateways import KEPT_GAPS
from semel.surfaces.epoch_raise import MAX_RAISES
from semel.surfaces.events import conversation, http_stream
from semel.surfaces.events import limits as events
from semel.surfaces.events import reading as events_reading
from semel.surfaces.events import socket as events_socket
from semel.surfaces.jobs import diagnosis as jobs_diagnosis
from semel.surfaces.jobs import limits as jobs
from semel.surfaces.jobs import long_poll
from semel.surfaces.jobs import reading as jobs_reading
from semel.surfaces.jobs import service as jobs_parts
from semel.surfaces.jobs.rules import claim, cron
from semel.surfaces.ledger import block_watch, calls, pagination, validation
from semel.surfaces.ledger import limits as ledger
from semel.surfaces.ledger import service as ledger_service
from semel.surfaces.ledger.grpc import requests as inbound
from semel.surfaces.ledger.grpc import write_stream
from semel.surfaces.streams.lists import MAX_LISTED
from semel.surfaces.streams.reading import PAGE_APPENDS
from semel.surfaces.streams.rules import fork_chain
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS
from semel.surfaces.streams.rules.offsets import KEPT_EPOCHS
from semel.surfaces.streams.subscriptions import http as subscriptions
from semel.surfaces.streams.subscriptions.commands import MATCHED_STREAMS, WAKE_STREAMS
from semel.surfaces.streams.subscriptions.reading import SHOWN_LINKS
from semel.surfaces.streams.subscriptions.rules.globs import MAX_SEGMENTS
from semel.surfaces.streams.subscriptions.signature import TOKEN_MS
from semel.surfaces.streams.tail_cache import CACHE_BYTES, TAIL_BYTES
from semel.surfaces.streams.wire import headers, requests


class Limit(NamedTuple):
    """One row: what is limited, its value, the unit of the value, and what happens at the limit."""

    name: str
    value: float | str
    """A number, or the name of a setting."""
    unit: str
    effect: str
    note: str = ""
    """What is said behind the value."""


class Section(NamedTuple):
    """The limits under one heading, and a sentence that holds for all of them."""

    name: str
    about: str
    limits: Sequence[Limit]


NO_LIMIT = "no limit"
EXACT: Mapping[float, str] = {2**53 - 1: "2^53-1", 2**64 - 1: "2^64-1", 2**40: "2^40", 2**62: "2^62"}
"""Numbers that are shown as powers."""
BYTES, MS, SECONDS, CHARACTERS, COUNT = "bytes", "ms", "s", "characters", ""
AT_400 = "400 `INVALID_REQUEST`"
PAGE_ENDS = "the page ends early"

# fmt: off
SECTIONS: Sequence[Section] = (
    Section("Limits of a request", "", (
        Limit("`Idempotency-Key`", keys.MAX_KEY_LENGTH, CHARACTERS, "400 `INVALID_IDEMPOTENCY_KEY`"),
        Limit("body", "max_body_bytes", BYTES, "413 `PAYLOAD_TOO_LARGE`, connection closed"),
        Limit("JSON nesting", MAX_DEPTH, "levels", "400 `INVALID_JSON`"),
        Limit("target and headers", "http_max_head_bytes", BYTES, "431 `HEADERS_TOO_LARGE`, connection closed"),
        Limit("header fields", connection_limit.MAX_HEAD_FIELDS, COUNT, "431 `HEADERS_TOO_LARGE`, connection closed"),
        Limit("target, and each header, of a WebSocket handshake", reader.HANDSHAKE_LINE_BYTES, BYTES,
            "431 `HEADERS_TOO_LARGE`, connection closed"),
        Limit("chunk extensions and trailers of a body", reader.MAX_EXCESS_BYTES, BYTES,
            "400 `INVALID_REQUEST`, connection closed", "beyond 20 bytes a chunk"),
        Limit("silence while a request arrives", "http_silence_ms", MS, "408 `REQUEST_TIMEOUT`, connection closed",
            "checked every 5 s"),
        Limit("arrival of target and headers", "http_head_ms", MS, "408 `REQUEST_TIMEOUT`, connection closed"),
        Limit("arrival of a body", "http_body_ms", MS, "408 `REQUEST_TIMEOUT`, connection closed"),
        Limit("answer that the client does not read", "http_stall_ms", MS, "connection closed",
            f"in which it must read {protocol.STALL_BYTES // 1024} KiB"),
        Limit("connection without a first request", "http_idle_ms", MS, "408 `REQUEST_TIMEOUT`, connection closed"),
        Limit("idle kept connection", "http_idle_ms", MS, "connection closed"),
    )),
    Section("Limits of all requests together",
        "An IPv6 network of 64 bits counts as one address.", (
        Limit("connections", "http_max_connections", COUNT, "503 `OVERLOADED`, connection closed"),
        Limit("HTTP and gRPC connections of one address", "http_max_connections_per_address", COUNT,
            "503 `OVERLOADED`, connection closed"),
        Limit("file descriptors reserved for the store and the log", connection_limit.RESERVED_FILES, COUNT,
            "503 `OVERLOADED` for a connection that would take one", "at most an eighth of all"),
        Limit("bodies that arrive in pieces", "max_uploads_bytes", BYTES, "503 `OVERLOADED`"),
        Limit("writes that wait for a commit", "queue_writes", COUNT, "503 `OVERLOADED`"),
        Limit("bytes that wait for a commit", "queue_bytes", BYTES, "503 `OVERLOADED`; one write is always admitted"),
        Limit("share of both for one caller with a credential", "queue_principal_share", COUNT,
            "503 `OVERLOADED` for that caller"),
        Limit("writes in a batch", "batch_writes", COUNT, "the next batch"),
        Limit("bytes in a batch", EngineLimits().batch.bytes, BYTES, "the next batch; one write is always admitted"),
        Limit("concurrent reads of SQLite", SqliteFileStore.readers, COUNT, "further reads wait"),
        Limit("wait for another program that locks the SQLite file", WAIT_SECONDS, SECONDS, "503 `NOT_STORED`"),
        Limit("soft changes that wait, such as a restarted TTL window", MAX_WAITING, COUNT, "further ones are dropped"),
        Limit("forward jump of the clock", JUMP_MS, MS, "[expiry waits](../operating/running.md)"),
        Limit("raises of the epoch", MAX_RAISES, COUNT, "`semel epoch raise` refuses"),
    )),
    Section("Limits of a principal",
        "Off by default. A `[[quota]]` table may give one principal other limits: [running a "
        "server](../operating/running.md).", (
        Limit("requests a second; a burst may use one second at once", "quota_requests_per_second", COUNT,
            "429 `QUOTA_EXCEEDED`; a WebSocket or a gRPC stream is not read for a while"),
        Limit("bytes of bodies a second", "quota_body_bytes_per_second", COUNT,
            "429 `QUOTA_EXCEEDED` for the requests after the body that exceeded it"),
        Limit("writes that wait for a commit", "quota_in_flight_writes", COUNT,
            "429 `QUOTA_EXCEEDED`; a WebSocket waits"),
        Limit("connections", "quota_connections", COUNT, "429 `QUOTA_EXCEEDED`, connection closed"),
        Limit("live readers", "quota_live_readers", COUNT, "429 `QUOTA_EXCEEDED`"),
        Limit("subscriptions to streams", "quota_subscriptions", COUNT, "429 `QUOTA_EXCEEDED`"),
        Limit("refusals a second that are answered at once", accounts.PROMPT_REFUSALS, COUNT,
            "further ones are answered after 1 to 2 s"),
    )),
    Section("Limits of streams", "", (
        Limit("messages of one append to a JSON stream", "streams_max_messages", COUNT, "413 `PAYLOAD_TOO_LARGE`"),
        Limit("name", headers.MAX_NAME_BYTES, BYTES, AT_400),
        Limit("`Content-Type`", requests.MAX_CONTENT_TYPE_BYTES, BYTES, AT_400),
        Limit("`Stream-Seq`", requests.MAX_STREAM_SEQ_BYTES, BYTES, AT_400),
        Limit("`Producer-Id`", headers.MAX_PRODUCER_ID_BYTES, BYTES, "400 `INVALID_PRODUCER`"),
        Limit("`Producer-Epoch`, `Producer-Seq`", MAX_NUMBER, COUNT, "400 `INVALID_PRODUCER`"),
        Limit("`Stream-TTL`", headers.MAX_TTL_DIGITS, "digits", "400 `INVALID_EXPIRY`"),
        Limit("`Stream-Retention-Age`, `Stream-Retention-Bytes`", headers.MAX_RETENTION_DIGITS, "digits",
            "400 `INVALID_RETENTION`"),
        Limit("forks of forks in a row with content", fork_chain.MAX_SEGMENTS, COUNT, "400 `INVALID_FORK`"),
        Limit("life of a key", "streams_idempotency_ttl_ms", MS, "the key is unknown: a retry is a new append"),
        Limit("content of a page", "streams_page_bytes", BYTES,
            "continue from `Stream-Next-Offset`; one append is never split"),
        Limit("appends of a page", PAGE_APPENDS, COUNT, "continue from `Stream-Next-Offset`"),
        Limit("long poll", "streams_long_poll_ms", MS, "204"),
        Limit("event stream", "streams_sse_max_ms", MS, "it ends; reconnect from the last offset"),
        Limit("streams in a listing", MAX_LISTED, COUNT, AT_400, "100 by default"),
        Limit("hot tail in memory, of one stream", TAIL_BYTES, BYTES, "older appends are read from the store"),
        Limit("hot tails in memory, of all streams", CACHE_BYTES, BYTES, "the least recently read are dropped"),
        Limit("space of an ended stream", SWEEP_GRACE_MS, MS, "freed by the next sweep; it is 404 at once"),
        Limit("ended epochs that a stream remembers", KEPT_EPOCHS, COUNT,
            "offsets of older ones are 410 `STREAM_GONE`, with the beginning"),
        Limit("subscriptions", "streams_subscriptions", COUNT, "429 `SUBSCRIPTION_LIMIT`"),
        Limit("explicit streams of a subscription", subscriptions.MAX_STREAMS, COUNT, AT_400),
        Limit("streams under the literal prefix of a new pattern", MATCHED_STREAMS, COUNT,
            "400 `INVALID_REQUEST`; later streams are linked without a limit"),
        Limit("segments of a pattern", MAX_SEGMENTS, COUNT, AT_400, "`**` at most twice"),
        Limit("streams of one wake or claim", WAKE_STREAMS, COUNT, "the others are in the next wake"),
        Limit("streams in the record of a subscription", SHOWN_LINKS, COUNT, "`streams_truncated` is true"),
        Limit("acks of one call", subscriptions.MAX_ACKS, COUNT, AT_400),
        Limit("body of a request to a subscription", subscriptions.MAX_BODY_BYTES, BYTES,
            "413 `PAYLOAD_TOO_LARGE`"),
        Limit("concurrent webhook attempts of a node", subscriptions.WEBHOOKS_AT_ONCE, COUNT, "the others wait"),
        Limit("webhook attempt", "streams_webhook_ms", MS, "the attempt has failed"),
        Limit("answer to a webhook", subscriptions.MAX_WEBHOOK_ANSWER_BYTES, BYTES, "the attempt has failed"),
        Limit("life of the token of a wake", TOKEN_MS, MS, "401 `TOKEN_EXPIRED`"),
    )),
    Section("Limits of events", "", (
        Limit("`id`", events.MAX_ID_BYTES, BYTES, "item `validation_failed`"),
        Limit("`instance`", events.MAX_INSTANCE_BYTES, BYTES, "`bad_request`"),
        Limit("name of a partition, in NFC", events.MAX_NAME_BYTES, BYTES,
            "item `validation_failed`; in `sync` `bad_request`"),
        Limit("partitions of an event or of a `sync`", events.MAX_NAMES, COUNT,
            "item `validation_failed`; in `sync` `bad_request`"),
        Limit("event nesting", events.EVENT_LEVELS, "levels", "item `validation_failed`"),
        Limit("message or body, in both directions", "events_message_bytes", BYTES,
            "`bad_request` and close 1009; 413"),
        Limit("event as it is sent to a reader", events.EventLimits().message_bytes - events.EventLimits().head_bytes,
            BYTES, "item `payload_too_large`", "a message less the names of a page"),
        Limit("names in a page", events.HEAD_BYTES, BYTES, "`bad_request` with `details.max_message_bytes`",
            "or a quarter of a message"),
        Limit("name of a request that its answer repeats", events.REPLY_BYTES, BYTES,
            "no `reply_to`; in 1.3 and 2.x `bad_request`", "or a sixteenth of a message"),
        Limit("message of a client that has not connected", events_socket.UNAUTHENTICATED_BYTES, BYTES,
            "`bad_request` and close 1009"),
        Limit("items of a submission", "events_batch_items", COUNT, "`bad_request` with `details.max_batch_size`"),
        Limit("items of a connection that wait for a commit", "events_in_flight_items", COUNT,
            "the connection is not read"),
        Limit("messages of a connection that wait", connection_limits.MAX_MESSAGES, COUNT, "the connection is not read",
            "or one largest message"),
        Limit("messages a second of a connection", "events_rate_messages", COUNT, "the connection is not read"),
        Limit("wait for room in the queue of writes", conversation.ROOM_SECONDS, SECONDS,
            "`rate_limited`; in 1.3 and 2.x `server_error` and close 1013. Nothing was stored"),
        Limit("malformed messages in a row", conversation.MAX_BAD_MESSAGES, COUNT, "close 1008"),
        Limit("silence of a client that sends heartbeats", "events_idle_ms", MS, "close 1001"),
        Limit("time until a client has connected", "events_idle_ms", MS, "close 1001"),
        Limit("time between two pings to other clients", "events_ping_ms", MS,
            "after two without an answer `server_error` and close 1001"),
        Limit("unsent bytes of a connection", "events_buffer_bytes", BYTES, "the client is refilled from the log",
            "and one page"),
        Limit("client that reads nothing", "events_slow_ms", MS, "`server_error` and close 1013"),
        Limit("events of a page", events.PAGE_MOST, COUNT,
            "`limit` is lowered; continue from `next_since_committed_id`", "500 by default"),
        Limit("types of a filter", events.MAX_TYPES, COUNT, "`bad_request`"),
        Limit("type of a filter", events.MAX_TYPE_BYTES, BYTES, "`bad_request`"),
        Limit("events that a filtered page compares", events_reading.SCANNED_EVENTS, COUNT, PAGE_ENDS, "or 1 MiB"),
        Limit("partitions of a page of their list", events.PAGE_MOST, COUNT,
            "`limit` is lowered; continue from `next_after`", "500 by default"),
        Limit("time between two comments of an idle event stream", http_stream.COMMENT_SECONDS, SECONDS, "-"),
        Limit("age of an event", "events_retention_ms", MS, "its content is freed; its id is remembered"),
        Limit("`committed_id`", events.MAX_COMMITTED_ID, COUNT, "`server_error`"),
    )),
    Section("Limits of jobs",
        "400 is `invalid_request`, and names the field in `field`. Sizes are those of canonical JSON.", (
        Limit("body", jobs.MAX_BODY_BYTES, BYTES, "413 `too_large`, connection closed"),
        Limit("`params`", jobs.MAX_PARAMS_BYTES, BYTES, "400"),
        Limit("nesting of `params`, a result or an error", canonical.MAX_DEPTH, "levels", "400"),
        Limit("`client`", jobs.MAX_CLIENT_BYTES, BYTES, "400"),
        Limit("key of a job or of a step", jobs.MAX_KEY_CHARACTERS, CHARACTERS, "400"),
        Limit("`kind`, `worker_id`, name of a schedule, `code` of an error", jobs.MAX_NAME_CHARACTERS, CHARACTERS,
            "400"),
        Limit("name of a queue", jobs.MAX_QUEUE_CHARACTERS, CHARACTERS, "400"),
        Limit("`claim_id`", jobs.MAX_CLAIM_ID_CHARACTERS, CHARACTERS, "400"),
        Limit("`delay_ms` of a submission", jobs.MAX_DELAY_MS, MS, "400; `run_at` has no limit"),
        Limit("`delay_ms` of a deferral, `retry_after_ms`", jobs.MAX_DEFER_MS, MS, "400"),
        Limit("`for_ms` of `unique`", jobs.MAX_UNIQUE_MS, MS, "400"),
        Limit("`max_attempts`", jobs.MAX_ATTEMPTS, COUNT, "400"),
        Limit("`lease_sec`", jobs.MAX_LEASE_SEC, SECONDS, "400"),
        Limit("`timeout_ms`, `default_timeout_ms`", jobs.MAX_TIMEOUT_MS, MS, "400"),
        Limit("`wait_ms`", jobs.MAX_WAIT_MS, MS, "400; a longer `Prefer: wait` is lowered"),
        Limit("jobs of a claim", jobs.MAX_CLAIM_JOBS, COUNT, "400"),
        Limit("kinds, or queues, of a claim", jobs.MAX_CLAIM_NAMES, COUNT, "400"),
        Limit("jobs of a batch", jobs.MAX_BATCH_JOBS, COUNT, "400"),
        Limit("steps of a job", jobs.MAX_STEPS, COUNT, "413 `too_large`"),
        Limit("members of a group, or children of a job", jobs.MAX_MEMBERS, COUNT, "413 `too_large`"),
        Limit("nesting of groups and children", jobs.MAX_NESTING, "levels", "413 `too_large`"),
        Limit("`progress`", jobs.MAX_PROGRESS_BYTES, BYTES, "400"),
        Limit("`error`", jobs.MAX_ERROR_BYTES, BYTES, "413 `too_large`; the lease is still held"),
        Limit("result of a job or of a step", "jobs_max_result_bytes", BYTES,
            "413 `too_large`; the lease is still held"),
        Limit("`reason` of a deferral", jobs.MAX_REASON_CHARACTERS, CHARACTERS, "400"),
        Limit("errors that a job remembers", jobs.ERRORS_KEPT, COUNT, "the oldest is dropped"),
        Limit("`message` of a remembered error", jobs.MAX_MESSAGE_BYTES, BYTES, "truncated"),
        Limit("jobs, or dead letters, of a page", jobs.MAX_LIST_JOBS, COUNT, "400; continue with `after`",
            "100 by default"),
        Limit("rows scanned for a filtered page", jobs.MAX_LISTED_ROWS, COUNT, "the page ends early, with a `next`"),
        Limit("`max_inflight` of a queue", jobs.MAX_QUEUE_LIMIT, COUNT, "400"),
        Limit("`count` of a rate limit", jobs.MAX_RATE_COUNT, COUNT, "400"),
        Limit("`per_ms` of a rate limit", jobs.MAX_RATE_MS, MS, "400"),
        Limit("queues in their listing", jobs_reading.MAX_QUEUES, COUNT, "the rest is left out"),
        Limit("schedules in their listing", jobs_reading.MAX_SCHEDULES, COUNT, "the rest is left out"),
        Limit("cron line", cron.MAX_CHARACTERS, CHARACTERS, "400"),
        Limit("missed instants with `catch_up` `all`", jobs.MAX_CATCH_UP, COUNT,
            "older ones are skipped: `SCHEDULE_SKIPPED` in the audit log"),
        Limit("waiting jobs", "jobs_max_queue_depth", COUNT, "429 `backpressure`"),
        Limit("waiting jobs of a caller", "jobs_max_queue_depth_per_principal", COUNT, "429 `backpressure`"),
        Limit("waiting jobs of a queue", "jobs_max_queue_depth_per_queue", COUNT, "429 `backpressure`"),
        Limit("scheduled jobs", "jobs_max_scheduled", COUNT, "429 `backpressure`"),
        Limit("scheduled jobs of a caller", "jobs_max_scheduled_per_principal", COUNT, "429 `backpressure`"),
        Limit("scheduled jobs of a queue", "jobs_max_scheduled_per_queue", COUNT, "429 `backpressure`"),
        Limit("share of waiting and scheduled jobs for one caller while others have jobs", "jobs_principal_share",
            COUNT, "429 `backpressure`"),
        Limit("running jobs", "jobs_max_inflight", COUNT, "a claim gets none, with `defer_ms` 500"),
        Limit("keys that callers named", "jobs_idempotency_store_max_items", COUNT,
            "429 `idempotency_store_full`, or eviction"),
        Limit("keys of a caller", "jobs_idempotency_store_max_items_per_principal", COUNT,
            "429 `idempotency_store_full`"),
        Limit("generated keys", jobs.JobPolicy().max_generated, COUNT,
            "the key of an ended job is evicted; without one 429 `idempotency_store_full`"),
        Limit("life of a key after its job's end", "jobs_idempotency_ttl_sec", SECONDS,
            "the key is unknown: a retry is a new job"),
        Limit("life of a generated key after its job's end", jobs.JobPolicy().generated_ttl_ms, MS,
            "the key is unknown: a retry is a new job"),
        Limit("outcome in the answer to a repeated submission", "jobs_idempotency_max_cached_bytes", BYTES,
            "left out; read it at `result_url`"),
        Limit("life of an ended job", "jobs_retention_sec", SECONDS, "freed; 404"),
        Limit("wait without a claim", "jobs_queue_item_ttl_sec", SECONDS, "failed, `queue_ttl`"),
        Limit("confirmation of an offered lease", "jobs_offer_sec", SECONDS,
            "the job goes to another worker; no attempt is charged"),
        Limit("lease of a job without its own", "jobs_lease_timeout_sec", SECONDS, "the lease ends"),
        Limit("end of a lease over several nodes", jobs_parts.REAP_GRACE_MS, MS, "the job is queued again",
            "later than its time"),
        Limit("runs of a job without its own limit", "jobs_retry_max_attempts", COUNT, "failed, a dead letter"),
        Limit("pause between two runs", "jobs_retry_backoff_cap_ms", MS, "the pause grows no further"),
        Limit("dead letters", "jobs_dlq_max_items", COUNT, "the oldest leave the listing; their jobs stay"),
        Limit("workers of a node that wait for a job", long_poll.MAX_LONG_POLLS, COUNT, "answered at once"),
        Limit("pairs of queue and priority that a claim searches", claim.MAX_LINES, COUNT,
            "less urgent ones wait until others are empty"),
    )),
    Section("Limits of the ledger",
        "400 is `INVALID_ARGUMENT`, over gRPC too.", (
        Limit("operations of a transaction", "ledger_max_operations", COUNT, "400", "at least 1"),
        Limit("keys and values of a transaction", "ledger_max_payload_bytes", BYTES, "400",
            "and no more than a body may have"),
        Limit("key of an entity", "ledger_max_key_bytes", BYTES, "400"),
        Limit("value of an entity", "ledger_max_value_bytes", BYTES, "400"),
        Limit("resource or subject", ledger.LedgerLimits().max_resource_characters, CHARACTERS, "400"),
        Limit("relation", ledger.LedgerLimits().max_relation_characters, CHARACTERS, "400"),
        Limit("actor", ledger.LedgerLimits().max_actor_characters, CHARACTERS, "400"),
        Limit("client id", ledger.MAX_CLIENT_CHARACTERS, CHARACTERS, "400"),
        Limit("name of an organization", ledger.MAX_NAME_CHARACTERS, CHARACTERS, "400"),
        Limit("`sequence`", ledger.MAX_SEQUENCE, COUNT, "409: use another client id"),
        Limit("sequences sent ahead of the last one", ledger.PIPELINE, COUNT, "409 `SEQUENCE_GAP`"),
        Limit("value in the answer of a failed condition", ledger.MAX_TOLD_VALUE_BYTES, BYTES,
            "left out; the version is sent"),
        Limit("transactions of a request", ledger.MAX_BULK, COUNT, "400"),
        Limit("operations of a request", ledger.MAX_BULK_OPERATIONS, COUNT, "400"),
        Limit("keys of a `batchRead`", ledger.MAX_BATCH_KEYS, COUNT, "400"),
        Limit("values in the answer of a `batchRead`", ledger.MAX_ANSWER_BYTES, BYTES, "400; ask for fewer keys"),
        Limit("blocks of a range", ledger.MAX_RANGE_BLOCKS, COUNT, "400"),
        Limit("content of a range of blocks", ledger.MAX_RANGE_BYTES, BYTES, "the range ends early", "roughly"),
        Limit("headers of a `chainProof`", ledger.MAX_CHAIN_HEADERS, COUNT, "400; prove in steps"),
        Limit("items of a page", ledger.MAX_PAGE, COUNT, "400", "100 by default"),
        Limit("rows scanned for a page", ledger.MAX_LISTED_ROWS, COUNT, "the page ends early, with a token"),
        Limit("content of a page", ledger.MAX_PAGE_BYTES, BYTES, "the page ends early, with a token", "roughly"),
        Limit("page token", pagination.MAX_TOKEN_CHARACTERS, CHARACTERS, "400"),
        Limit("time between two comments of an idle stream of blocks", calls.KEEPALIVE_SECONDS, SECONDS, "-"),
        Limit("blocks that a watcher may be behind", ledger.WATCH_BEHIND, COUNT,
            "disconnected; it continues after its last block",
            f"if it does not read for {block_watch.SLOW_SECONDS:g} s"),
        Limit("`ttlSeconds` of an organization", ledger.MAX_TTL_SECONDS, COUNT, "400"),
        Limit("`evictionInterval` of an organization", ledger.MAX_INTERVAL, COUNT, "400"),
        Limit("`retentionBlocks` of a vault", validation.MAX_RETAINED, COUNT, "400"),
        Limit("memory of a commit, in new organizations", "ledger_ttl_sec", SECONDS, "forgotten"),
        Limit("log entries between two evictions, in new organizations", "ledger_eviction_interval", COUNT,
            "expired entries are forgotten"),
        Limit("answers in the replay cache", "ledger_hot_items", COUNT,
            "the least recently used are dropped; retries get the [other form](ledger.md#a-replay)"),
        Limit("age of an answer in the replay cache", ledger_service.HOT_MS / 1_000, SECONDS, "dropped"),
        Limit("organizations", "ledger_max_orgs", COUNT, "429"),
        Limit("vaults of an organization", "ledger_max_vaults", COUNT, "429"),
        Limit("transactions a second of an organization", "ledger_writes_per_sec", COUNT,
            "429 with `retry_after_ms`; replays continue"),
    )),
    Section("Limits of gRPC",
        "A message is limited as a body is, after decompression. Unsent answers may have half of "
        "`SEMEL_MAX_UPLOADS_BYTES`; beyond it a call is `UNAVAILABLE`. Calls that need no credential, such as "
        "health checks, are counted separately.", (
        Limit("connections", grpc_server.MAX_CONNECTIONS, COUNT, "closed"),
        Limit("calls", grpc_server.MAX_CALLS, COUNT, "`UNAVAILABLE`"),
        Limit("calls that need no credential", grpc_server.MAX_OPEN_CALLS, COUNT,
            "the oldest of them is `UNAVAILABLE`"),
        Limit("calls without a credential on one connection", grpc_server.MAX_OPEN_CALLS_EACH, COUNT,
            "`RESOURCE_EXHAUSTED`"),
        Limit("message of a call without a credential", messages.OPEN_BYTES, BYTES, "`INVALID_ARGUMENT`"),
        Limit("message of a read, or about organizations and vaults", inbound.READ_BYTES, BYTES, "`INVALID_ARGUMENT`",
            "more where longer keys are allowed"),
        Limit("message of a `BatchRead`", inbound.BATCH_READ_BYTES, BYTES, "`INVALID_ARGUMENT`",
            "more where longer keys are allowed"),
        Limit("calls on one connection", flow_control.MAX_STREAMS, COUNT, "the client waits"),
        Limit("head of a call", flow_control.MAX_HEAD_BYTES, BYTES, "refused, or the connection is closed"),
        Limit("resets of unanswered calls", grpc_connection.SPARE_RESETS, COUNT, "connection closed",
            "and one more a second, up to 1,000"),
        Limit("shortest deadline", metadata.SHORTEST_NANOS / 1_000_000, MS, "`DEADLINE_EXCEEDED`"),
        Limit("connection without a frame", grpc_connection.PREFACE_SECONDS, SECONDS, "closed"),
        Limit("connection without a call", grpc_connection.IDLE_SECONDS, SECONDS, "closed with GOAWAY"),
        Limit("silence before a ping", grpc_connection.PING_SECONDS, SECONDS, "a ping"),
        Limit("silence of a connection", grpc_connection.SILENCE_SECONDS, SECONDS, "closed"),
        Limit("silence while a message arrives", grpc_connection.UPLOAD_SILENCE_SECONDS, SECONDS,
            "`DEADLINE_EXCEEDED`"),
        Limit("arrival of a message", grpc_connection.UPLOAD_SECONDS, SECONDS, "`DEADLINE_EXCEEDED`"),
        Limit("answer that the client does not read", grpc_connection.STALL_SECONDS, SECONDS,
            "the call is cancelled, or the connection closed"),
        Limit("time between two messages of a stream of transactions", grpc_connection.STREAM_SILENCE_SECONDS, SECONDS,
            "it ends"),
        Limit("stream of transactions", grpc_connection.STREAM_SECONDS, SECONDS, "it ends"),
        Limit("transactions of a stream without a verdict", write_stream.AHEAD, COUNT,
            "the server stops reading; flow control stops the client"),
        Limit("unread messages of a stream of transactions", write_stream.UNREAD_MESSAGES, COUNT,
            "`RESOURCE_EXHAUSTED` ends the stream"),
        Limit("status message", metadata.MAX_MESSAGE_CHARACTERS, CHARACTERS, "truncated"),
    )),
    Section("Limits of deltas",
        "400 is `VALIDATION_ERROR`, and nothing of the push is stored. A caller is a credential with its own name, "
        "else an address.", (
        Limit("body of a push, or a frame", "deltas_max_body_bytes", BYTES, "413, connection closed; close 1009"),
        Limit("deltas of a push", "deltas_max_deltas", COUNT, "400"),
        Limit("name of a gateway", deltas.MAX_GATEWAY_CHARACTERS, CHARACTERS, "404"),
        Limit("`clientId`", deltas.MAX_CLIENT_CHARACTERS, CHARACTERS, "400"),
        Limit("`rowId`", deltas.MAX_ROW_CHARACTERS, CHARACTERS, "400"),
        Limit("name of a table or a column", deltas.MAX_TABLE_CHARACTERS, CHARACTERS, "422 `SCHEMA_ERROR`"),
        Limit("nesting of a push", MAX_DEPTH, "levels", "400"),
        Limit("client's clock ahead of the server's", MAX_DRIFT_MS, MS, "409 `CLOCK_DRIFT`"),
        Limit("columns of a row over its life, and of a delta", deltas.MAX_COLUMNS, COUNT, "413"),
        Limit("merged row, with its stamps", deltas.MAX_ROW_BYTES, BYTES, "413"),
        Limit("deltas in the `details` of a refusal", deltas_refusals.MAX_FLAWS, COUNT, "the first are named"),
        Limit("entries of a page", deltas.MAX_PAGE, COUNT, "`limit` is lowered", "100 by default"),
        Limit("content of a page", deltas.PAGE_BYTES, BYTES, "the page ends early, with `hasMore`", "roughly"),
        Limit("cursors of pushes that are kept for a client", deltas.MAX_ALIASES, COUNT,
            "the oldest stands for its own position again", f"at least {deltas.KEPT_ALIASES}"),
        Limit("tables of a gateway with a schema", deltas.MAX_TABLES, COUNT, "422 `SCHEMA_ERROR`"),
        Limit("sync rules", deltas.MAX_RULES_BYTES, BYTES, "400"),
        Limit("buckets of sync rules", deltas.MAX_BUCKETS, COUNT, "400"),
        Limit("filters of a bucket", deltas.MAX_FILTERS, COUNT, "400"),
        Limit("columns in a repair", deltas.REPAIRED_COLUMNS, COUNT, "the repair has the whole row"),
        Limit("gateways", "deltas_max_gateways", COUNT, "429"),
        Limit("clients that have pushed to a gateway", "deltas_max_clients", COUNT,
            "429 for the push of a further one; pulls are not counted"),
        Limit("inactivity of a client", "deltas_client_ttl_sec", SECONDS,
            "forgotten: its cursors stand for their own positions again"),
        Limit("clients without a push whose cursors a process remembers", deltas_shown.MAX_SHOWN, COUNT,
            "the oldest gets everything again when it pushes"),
        Limit("age of the log of a gateway", "deltas_keep_log_sec", SECONDS,
            "a cursor before the cut is 410 `CURSOR_EXPIRED`"),
        Limit("gaps between epochs that a gateway remembers", KEPT_GAPS, COUNT,
            "the oldest two are joined: cursors between them are 410 `CURSOR_EXPIRED`"),
        Limit("pushes a second of a client", "deltas_pushes_per_sec", COUNT, "429 with `Retry-After`"),
        Limit("concurrent checkpoints", spool_files.MAX_AT_ONCE, COUNT, "503", "2 of them being written"),
        Limit("concurrent checkpoints of one caller", spool_files.MAX_EACH, COUNT, "503"),
        Limit("files of checkpoints", "deltas_checkpoints_bytes", BYTES,
            "503; 404 for a checkpoint above a quarter: pull from 0", "a quarter for one caller"),
        Limit("free disk space that checkpoints leave", spool_files.FREE_BYTES, BYTES, "503, and a line in the log"),
        Limit("unsent answers", "deltas_answers_bytes", BYTES, "503 for a pull, or close 1013; a broadcast waits",
            "half for one caller"),
        Limit("bodies and frames that arrive", "max_uploads_bytes", BYTES, "503; close 1013", "half for one caller"),
        Limit("arrival of a frame", "http_body_ms", MS, "close 1013"),
        Limit("WebSockets", "deltas_max_sockets", COUNT, "503"),
        Limit("unsent bytes of a WebSocket", "deltas_live_bytes", BYTES, "the connection is not read"),
        Limit("frames of a WebSocket that wait", connection_limits.MAX_MESSAGES, COUNT, "the connection is not read",
            "or one largest push"),
        Limit("wait of a WebSocket push for room in the queue of writes", deltas_conversation.ROOM_SECONDS, SECONDS,
            "close 1013; nothing was stored"),
        Limit("silence of a WebSocket", deltas_conversation.PING_SECONDS, SECONDS, "a ping; after two, close 1013"),
    )),
    Section("Limits of credentials", "", (
        Limit("tokens in the store", "max_stored_tokens", COUNT,
            "the token that ended first is dropped; without one 429 `TOKEN_LIMIT`"),
        Limit("name of a stored token", token_wire.MAX_NAME, CHARACTERS, AT_400),
        Limit("scopes of a stored token", token_wire.MAX_SCOPES, COUNT, AT_400),
        Limit("scope of a stored token", token_wire.MAX_SCOPE, CHARACTERS, AT_400),
        Limit("overlap of a rotation", token_wire.MAX_OVERLAP_MS, MS, AT_400),
        Limit("body of a request about tokens", token_calls.MAX_BODY_BYTES, BYTES, "413 `PAYLOAD_TOO_LARGE`"),
        Limit("JWT", jwt_claims.MAX_TOKEN_BYTES, BYTES, "401 `UNAUTHORIZED`"),
        Limit("`sub` and `client_id`", jwt_claims.MAX_IDENTITY_BYTES, BYTES, "401 `UNAUTHORIZED`"),
        Limit("names in one claim", jwt_claims.MAX_NAMES, COUNT, "401 `UNAUTHORIZED`"),
        Limit("issuer's clock ahead of the server's", jwt_claims.LEEWAY_MS, MS, "401 `UNAUTHORIZED`: not valid yet"),
        Limit("keys tried for a JWT without `kid`", jwt_keys.MAX_TRIED, COUNT, "401 `UNAUTHORIZED`"),
        Limit("keys in the key file", jwt_keys.MAX_KEYS, COUNT, "no start; a changed file is rejected"),
        Limit("key file", jwt_keys.MAX_FILE_BYTES, BYTES, "no start; a changed file is rejected"),
        Limit("time between two checks of the key file", jwt_keys.LOOK_MS, MS, "a change is seen later"),
        Limit("fetch of keys from a URL", jwks_url.FETCH_SECONDS, SECONDS, "the previous keys stay in use"),
        Limit("time between two fetches of keys", jwks_url.MISS_SECONDS, SECONDS, "the fetch waits"),
        Limit("use of fetched keys", jwks_url.MAX_AGE_SECONDS, SECONDS, "fetched again",
            f"at least {jwks_url.MIN_AGE_SECONDS:g} s; between them `max-age` decides"),
    )),
    Section("Limits of logs",
        "The audit log is paced by kind, address and reason: a source is one combination of them.", (
        Limit("audit lines that wait for the disk, for each file", rotated_file.MAX_WAITING_BYTES, BYTES,
            "further ones are lost; a line has their number"),
        Limit("burst of audit lines of a source", PACED_LINES.burst, COUNT, "further ones are counted"),
        Limit("time until a source may write one more line", PACED_LINES.refill_ms, MS, "-"),
        Limit("burst of important audit lines of a source", IMPORTANT_LINES.burst, COUNT, "further ones are counted"),
        Limit("time until it may write one more", IMPORTANT_LINES.refill_ms, MS, "-"),
        Limit("sources with their own pace", audit_rate_limit.MAX_SOURCES, COUNT,
            "further ones of a kind are paced and counted together"),
        Limit("text in an audit line", audit_log.MAX_TEXT, CHARACTERS, "truncated"),
        Limit("audit line", audit_log.MAX_LINE_BYTES, BYTES, "its details are left out"),
        Limit("an audit file", "audit_file_bytes", BYTES, "rotated"),
        Limit("rotated files of each", rotated_file.KEPT, COUNT, "the oldest is deleted"),
        Limit("wait of an answer for its audit line", audit_log.WAIT_SECONDS, SECONDS, "the answer is sent"),
        Limit("log lines of one warning or error", logs.TOLD_AT_ONCE, COUNT, "left out, and counted in the next line",
            f"in {logs.TOLD_SECONDS:g} s"),
    )),
    Section("Limits of look-ups and diagnoses", "", (
        Limit("identity of a look-up", lookup.MAX_ID_BYTES, BYTES, AT_400),
        Limit("writes that a look-up finds", lookup.MAX_MATCHES, COUNT, "`complete` is false; `hint` says why"),
        Limit("scopes that it tries", lookup.MAX_PROBES, COUNT, "`complete` is false; `hint` says why"),
        Limit("its time", lookup.MAX_SECONDS, SECONDS, "`complete` is false; `hint` says why"),
        Limit("concurrent look-ups", find_calls.MAX_AT_ONCE, COUNT, "further ones wait"),
        Limit("waiting look-ups", find_calls.MAX_WAITING, COUNT, "503 `OVERLOADED`"),
        Limit("retries of a write that are kept", retry_table.KEPT_RETRIES, COUNT, "the oldest are dropped"),
        Limit("writes with counted retries", retry_table.MAX_ROWS, COUNT, "retries of further writes are not counted"),
        Limit("lines of a log in a diagnosis", logs.LOG_LINES, COUNT, "the last ones are taken"),
        Limit("log line in a diagnosis", logs.MAX_LINE_BYTES, BYTES, "truncated"),
        Limit("end of a log that is searched for them", diagnosis_bundle.MAX_TAIL_BYTES, BYTES, "fewer lines"),
        Limit("logs in a diagnosis", diagnosis_bundle.MAX_LOGS, COUNT, "the first ones by name are taken"),
        Limit("jobs of each kind in a diagnosis", jobs_diagnosis.OLDEST_JOBS, COUNT, "the oldest ones are taken"),
    )),
    Section("Limits of PostgreSQL",
        "`lanes`, `readers` and `patience_ms` are parameters of the store URL.", (
        Limit("`lanes`: concurrent transactions of a node", PgAddress("").lanes, COUNT, "further batches wait"),
        Limit("`readers`: connections for reads", PgAddress("").readers, COUNT, "further reads wait"),
        Limit("`patience_ms`: wait for an unreachable database", PgAddress("").patience_ms, MS,
            "503 `NOT_STORED`, `UNAVAILABLE` or `OUTCOME_UNKNOWN`"),
        Limit("one exchange with the database", BUSY_SHARE, "of that", "the connection counts as lost"),
        Limit("wait for locks of other transactions", LOCK_SHARE, "of that", "503 `NOT_STORED`"),
        Limit("unsent notifications to other nodes", MAX_HINTS, COUNT, "dropped; the nodes see the commits within 2 s"),
    )),
    Section("Limits of the command line", "", (
        Limit("content of one append, or one line", LARGEST_BYTES, BYTES, "refused before it is sent"),
        Limit("retries, unless `--retries` says otherwise", RETRIES, COUNT, "exit code 1, with the key to continue"),
    )),
)
# fmt: on


def limit_tables() -> Iterator[str]:
    """A table for each section."""
    defaults: dict[str, Any] = {one.name: one.default for one in setting_fields()}
    for number, section in enumerate(SECTIONS):
        yield from ([""] if number else [])
        yield from (f"### {section.name}", "")
        yield from (section.about, "") if section.about else ()
        yield from ("| limit | value | setting | at the limit |", "|---|---|---|---|")
        for one in section.limits:
            setting = f"`{PREFIX}{one.value.upper()}` " if isinstance(one.value, str) else ""
            value: float = defaults[one.value] if isinstance(one.value, str) else one.value
            shown = ", ".join(filter(None, (NO_LIMIT if value == 0 else quantity(value, one.unit), one.note)))
            yield f"| {one.name} | {shown} | {setting}| {one.effect} |"


def quantity(value: float, unit: str) -> str:
    """A number with its unit, in a larger unit if it is a whole number of those."""
    larger = larger_unit(UNITS[unit], value) if unit in UNITS else ""
    return larger or f"{EXACT.get(value) or format(value, ',.12g')} {unit}".strip()
