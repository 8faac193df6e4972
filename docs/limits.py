"""The limits that are constants of the code, by their rows in `docs/reference/limits.md`.

The page has the words: unit, metric, and what happens at the limit. `make docs` writes the numbers into it, from
this table and, for a row that names a setting, from the setting's default.
"""

from __future__ import annotations

from collections.abc import Mapping

from semel.cli.command import RETRIES
from semel.cli.source import LARGEST_BYTES
from semel.engine.engine import EngineLimits
from semel.engine.soft_changes import MAX_TOUCHES, MAX_WAITING
from semel.kernel import keys
from semel.kernel.clock import JUMP_MS
from semel.kernel.hlc import MAX_DRIFT_MS
from semel.kernel.json import canonical, outline
from semel.kernel.json.text import MAX_DEPTH
from semel.kernel.producer import MAX_NUMBER
from semel.server import thread_pool
from semel.server.auth import jwks_url, jwt_claims, jwt_keys, jwt_tokens, token_wire
from semel.server.grpc import connection as grpc_connection
from semel.server.grpc import flow_control, messages, metadata
from semel.server.grpc import server as grpc_server
from semel.server.http import connection_limit, protocol, reader
from semel.server.ops import audit_log, audit_rate_limit, diagnosis_bundle, logs, rotated_file, token_calls
from semel.server.ops.audit_log import IMPORTANT_LINES, PACED_LINES
from semel.server.quotas import accounts
from semel.server.websocket import connection_limits, transport
from semel.server.writes import find_calls, lookup, retry_log, retry_table
from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import BUSY_SHARE, LOCK_SHARE
from semel.store.postgres.locks import SLOTS
from semel.store.postgres.notify import MAX_WAITING as MAX_HINTS
from semel.store.sqlite import SqliteFileStore
from semel.store.sqlite.write_lock import WAIT_SECONDS
from semel.surfaces.deltas import commands as deltas_refusals
from semel.surfaces.deltas import conversation as deltas_conversation
from semel.surfaces.deltas import limits as deltas_limits
from semel.surfaces.deltas import spool_files
from semel.surfaces.deltas.rules import cursors as deltas_shown
from semel.surfaces.deltas.rules.gateways import KEPT_GAPS
from semel.surfaces.epoch_raise import MAX_RAISES
from semel.surfaces.events import conversation, feed, http_stream, subscriber
from semel.surfaces.events import limits as events_limits
from semel.surfaces.events import reading as events_reading
from semel.surfaces.events import socket as events_socket
from semel.surfaces.events.contract import PRUNED_AT_ONCE
from semel.surfaces.events.service import LOG_EVERY_MS
from semel.surfaces.jobs import contract as jobs_contract
from semel.surfaces.jobs import diagnosis as jobs_diagnosis
from semel.surfaces.jobs import limits as jobs_limits
from semel.surfaces.jobs import long_poll, maintenance
from semel.surfaces.jobs import reading as jobs_reading
from semel.surfaces.jobs import service as jobs_parts
from semel.surfaces.jobs.rules import claim, cron, reaper
from semel.surfaces.ledger import block_watch, calls, pagination, validation
from semel.surfaces.ledger import contract as ledger_contract
from semel.surfaces.ledger import limits as ledger_limits
from semel.surfaces.ledger.grpc import requests as inbound
from semel.surfaces.ledger.grpc import write_stream
from semel.surfaces.ledger.rules import group_rows
from semel.surfaces.ledger.wire import bodies as ledger_requests
from semel.surfaces.ledger.wire import members as ledger_members
from semel.surfaces.streams.lists import MAX_LISTED
from semel.surfaces.streams.reading import PAGE_APPENDS
from semel.surfaces.streams.rules import fork_chain
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS
from semel.surfaces.streams.rules.offsets import KEPT_EPOCHS
from semel.surfaces.streams.subscriptions.commands import MATCHED_STREAMS, WAKE_STREAMS
from semel.surfaces.streams.subscriptions.reading import SHOWN_LINKS
from semel.surfaces.streams.subscriptions.rules.globs import MAX_SEGMENTS
from semel.surfaces.streams.subscriptions.signature import TOKEN_MS
from semel.surfaces.streams.tail_cache import CACHE_BYTES, MAX_TAILS, TAIL_BYTES
from semel.surfaces.streams.wire import headers, requests

CONSTANTS: Mapping[str, float] = {
    "length of an `Idempotency-Key`": keys.MAX_KEY_LENGTH,
    "length of a stream's name": headers.MAX_NAME_BYTES,
    "length of a `Content-Type`": requests.MAX_CONTENT_TYPE_BYTES,
    "length of a `Stream-Seq`": requests.MAX_STREAM_SEQ_BYTES,
    "length of a `Producer-Id`": headers.MAX_PRODUCER_ID_BYTES,
    "`Producer-Epoch` and `Producer-Seq`": MAX_NUMBER,
    "digits of a `Stream-TTL`": headers.MAX_TTL_DIGITS,
    "digits of a `Stream-Retention-Age` and `Stream-Retention-Bytes`": headers.MAX_RETENTION_DIGITS,
    "forks of forks in a row, each with content of its own": fork_chain.MAX_SEGMENTS,
    "levels of JSON": MAX_DEPTH,
    "target, and each header, of a WebSocket handshake": reader.HANDSHAKE_LINE_BYTES,
    "chunk extensions and trailers of a body, beyond `20` bytes a chunk": reader.MAX_EXCESS_BYTES,
    "heads and chunks of a connection that are parsed in one turn": reader.SLICE_BYTES,
    "bytes that a slow client must read in that time": protocol.STALL_BYTES,
    "refusals of one principal that are answered at once, a second": accounts.PROMPT_REFUSALS,
    "principals with an account in memory": accounts.MOST_ACCOUNTS,
    "file descriptors kept back for the store and the log": connection_limit.RESERVED_FILES,
    "bytes in a batch": EngineLimits().batch.bytes,
    "rows that a batch may touch, roughly": EngineLimits().batch.cost,
    "stored payloads that a batch has to look at": EngineLimits().batch.loaded,
    "concurrent reads of the SQLite store": SqliteFileStore.readers,
    "wait for another program that holds the SQLite file": WAIT_SECONDS,
    "appends of a page": PAGE_APPENDS,
    "streams in a listing": MAX_LISTED,
    "streams under the literal beginning of a pattern, when its subscription is created": MATCHED_STREAMS,
    "segments of a pattern": MAX_SEGMENTS,
    "streams of one wake or claim": WAKE_STREAMS,
    "streams in the record of a subscription": SHOWN_LINKS,
    "life of the token of a wake": TOKEN_MS,
    "hot tail of a stream in memory": TAIL_BYTES,
    "hot tails in memory": CACHE_BYTES,
    "streams with a hot tail": MAX_TAILS,
    "length of an event's `id`": events_limits.MAX_ID_BYTES,
    "length of an `instance` in `connect`": events_limits.MAX_INSTANCE_BYTES,
    "length of a partition's name": events_limits.MAX_NAME_BYTES,
    "partitions of an event, or in a `sync`": events_limits.MAX_NAMES,
    "levels of an event": events_limits.EVENT_LEVELS,
    "event as it is sent to a reader": events_limits.EventLimits().message_bytes
    - events_limits.EventLimits().head_bytes,
    "room for the names in a page": events_limits.HEAD_BYTES,
    "name of a request that its answer repeats": events_limits.REPLY_BYTES,
    "messages of a connection that wait to be handled": connection_limits.MAX_MESSAGES,
    "wait for room in the queue of writes": conversation.ROOM_SECONDS,
    "message that is parsed on the event loop": thread_pool.APART_BYTES,
    "values of a message, or of an event that is shown, roughly": outline.LIGHT_BYTES,
    "message of a client that has not connected": events_socket.UNAUTHENTICATED_BYTES,
    "frames of a connection that are parsed in one turn": transport.FRAMES_A_TURN,
    "live events sent in one turn": feed.FRAMES_PER_TURN,
    "answered retries that a live reader is not sent again": subscriber.MAX_ANSWERED,
    "time to see why a connection closes": transport.LINGER_SECONDS,
    "events of a page": events_limits.PAGE_MOST,
    "types in a filter": events_limits.MAX_TYPES,
    "length of a type in a filter": events_limits.MAX_TYPE_BYTES,
    "events that a page with a filter compares": events_reading.SCANNED_EVENTS,
    "partitions of a page of the list": events_limits.PAGE_MOST,
    "events that a live reader is refilled with at once": subscriber.PAGE_EVENTS,
    "bytes that the feed of live events reads at once": feed.READ_BYTES,
    "time between two comments on an idle event stream": http_stream.COMMENT_SECONDS,
    "events freed in one write": PRUNED_AT_ONCE,
    "`committed_id`": events_limits.MAX_COMMITTED_ID,
    "body of a request for jobs": jobs_limits.MAX_BODY_BYTES,
    "body of a request for jobs that is parsed on the event loop": thread_pool.APART_BYTES,
    "`params`, canonical": jobs_limits.MAX_PARAMS_BYTES,
    "levels of `params`, of a result or an error": canonical.MAX_DEPTH,
    "`client`, canonical": jobs_limits.MAX_CLIENT_BYTES,
    "length of a key of jobs, or of a step": jobs_limits.MAX_KEY_CHARACTERS,
    "length of a `kind`, a `worker_id`, a schedule's name, an error's `code`": jobs_limits.MAX_NAME_CHARACTERS,
    "length of a queue's name": jobs_limits.MAX_QUEUE_CHARACTERS,
    "length of a `claim_id`": jobs_limits.MAX_CLAIM_ID_CHARACTERS,
    "`delay_ms` of a submission": jobs_limits.MAX_DELAY_MS,
    "`delay_ms` of a deferral, `retry_after_ms`": jobs_limits.MAX_DEFER_MS,
    "`for_ms` of `unique`": jobs_limits.MAX_UNIQUE_MS,
    "`max_attempts`": jobs_limits.MAX_ATTEMPTS,
    "`lease_sec`": jobs_limits.MAX_LEASE_SEC,
    "`timeout_ms` of a job, `default_timeout_ms` of a queue": jobs_limits.MAX_TIMEOUT_MS,
    "`wait_ms`": jobs_limits.MAX_WAIT_MS,
    "jobs of one claim": jobs_limits.MAX_CLAIM_JOBS,
    "kinds, or queues, that a claim names": jobs_limits.MAX_CLAIM_NAMES,
    "jobs of one batch": jobs_limits.MAX_BATCH_JOBS,
    "steps of a job": jobs_limits.MAX_STEPS,
    "members of a group, or children of a job": jobs_limits.MAX_MEMBERS,
    "levels of groups and children": jobs_limits.MAX_NESTING,
    "`progress`, canonical": jobs_limits.MAX_PROGRESS_BYTES,
    "an `error`, canonical": jobs_limits.MAX_ERROR_BYTES,
    "length of a deferral's `reason`": jobs_limits.MAX_REASON_CHARACTERS,
    "errors that a job remembers": jobs_limits.ERRORS_KEPT,
    "length of the `message` of a remembered error": jobs_limits.MAX_MESSAGE_BYTES,
    "live [generated keys](jobs.md#generated-keys)": jobs_limits.JobPolicy().max_generated,
    "life of a generated key after its job's end": jobs_limits.JobPolicy().generated_ttl_ms / 1_000,
    "jobs, or dead letters, of a page": jobs_limits.MAX_LIST_JOBS,
    "kinds and queues, each pair counted for each state, that a page of filtered jobs is merged from": (
        jobs_limits.MAX_LISTED_LINES
    ),
    "rows that are scanned for a page of filtered jobs": jobs_limits.MAX_LISTED_ROWS,
    "`max_inflight` of a queue": jobs_limits.MAX_QUEUE_LIMIT,
    "`count` of a rate limit": jobs_limits.MAX_RATE_COUNT,
    "`per_ms` of a rate limit": jobs_limits.MAX_RATE_MS,
    "queues in the listing of queues": jobs_reading.MAX_QUEUES,
    "schedules in the listing of schedules": jobs_reading.MAX_SCHEDULES,
    "length of a cron line": cron.MAX_CHARACTERS,
    "missed instants that `catch_up` `all` makes up for": jobs_limits.MAX_CATCH_UP,
    "schedules that are checked in one round": maintenance.TICKS_AT_ONCE,
    "workers of a node that wait for a job": long_poll.MAX_LONG_POLLS,
    "waiting workers whose claims are tried at once": long_poll.MOST_AT_ONCE,
    "pairs of queue and priority that a claim searches": claim.MAX_LINES,
    "time between two searches for expired leases": maintenance.REAP_SECONDS,
    "leases taken back in one commit": maintenance.REAPED_AT_ONCE,
    "delay before a lease is taken back, over several nodes": jobs_parts.REAP_GRACE_MS,
    "scheduled jobs counted as queued in one commit": maintenance.PROMOTED_AT_ONCE,
    "leases taken back before a claim": reaper.REAPED_BEFORE_A_CLAIM,
    "leases renewed in one commit after an outage": maintenance.RENEWED_AT_ONCE,
    "expired keys freed in one write": jobs_contract.FREED_RECORDS,
    "ended jobs freed in one write": jobs_contract.FREED_JOBS,
    "jobs that have just become ready, and keys that have expired, counted for the gauges": jobs_reading.MAX_COUNTED,
    "length of a client id": ledger_limits.MAX_CLIENT_CHARACTERS,
    "length of an organization's name": ledger_limits.MAX_NAME_CHARACTERS,
    "`sequence`": ledger_limits.MAX_SEQUENCE,
    "sequences sent ahead of the last one": ledger_limits.PIPELINE,
    "value in the answer of a failed condition": ledger_limits.MAX_TOLD_VALUE_BYTES,
    "transactions of one request": ledger_limits.MAX_BULK,
    "operations of all transactions of one request": ledger_limits.MAX_BULK_OPERATIONS,
    "transactions of a stream that are queued ahead of their verdicts": write_stream.AHEAD,
    "unread messages of a stream of transactions": write_stream.UNREAD_MESSAGES,
    "pages of state trees in memory": group_rows.MAX_CACHED_PAGES,
    "keys of a `batchRead`": ledger_limits.MAX_BATCH_KEYS,
    "values in the answer of a `batchRead`": ledger_limits.MAX_ANSWER_BYTES,
    "blocks of a range": ledger_limits.MAX_RANGE_BLOCKS,
    "content of a range of blocks, roughly": ledger_limits.MAX_RANGE_BYTES,
    "headers of a `chainProof`": ledger_limits.MAX_CHAIN_HEADERS,
    "items of a page of the ledger": ledger_limits.MAX_PAGE,
    "rows that are scanned for a page of the ledger": ledger_limits.MAX_LISTED_ROWS,
    "content of a page of the ledger, roughly": ledger_limits.MAX_PAGE_BYTES,
    "blocks above the height of a list that are searched for changes": ledger_limits.MAX_RECENT_BLOCKS,
    "operations in the blocks that are searched": ledger_limits.MAX_RECENT_BYTES,
    "strings, brackets and commas of a body with operations or keys": ledger_requests.PIECES_EACH,
    "strings, brackets and commas of any other body of the ledger": ledger_members.MOST_PIECES,
    "length of a page token of the ledger": pagination.MAX_TOKEN_CHARACTERS,
    "body of the ledger that is parsed on the event loop": thread_pool.APART_BYTES,
    "time between two comments on an idle stream of blocks": calls.KEEPALIVE_SECONDS,
    "blocks that a watcher may be behind without reading": ledger_limits.WATCH_BEHIND,
    "bytes of an event stream that wait in the system's buffer": calls.UNSENT_BYTES,
    "time to send a watcher the reason of its end": calls.LAST_WORDS_SECONDS,
    "blocks that a watcher is given at once": block_watch.PAGE_HEADERS,
    "time that a watcher may take to read them": block_watch.SLOW_SECONDS,
    "time between two checks for blocks without a notification": block_watch.LOOK_AGAIN_SECONDS,
    "blocks freed in one write": ledger_contract.FREED_BLOCKS,
    "forgotten clients freed in one write": ledger_contract.FREED_STREAMS,
    "places that are checked in one sweep": ledger_contract.PLACES_AT_ONCE,
    "`ttlSeconds` of an organization": ledger_limits.MAX_TTL_SECONDS,
    "`evictionInterval` of an organization": ledger_limits.MAX_INTERVAL,
    "`retentionBlocks` of a vault": validation.MAX_RETAINED,
    "connections of gRPC": grpc_server.MAX_CONNECTIONS,
    "calls of gRPC under way": grpc_server.MAX_CALLS,
    "calls of gRPC under way that need no credential": grpc_server.MAX_OPEN_CALLS,
    "calls without a credential on one gRPC connection": grpc_server.MAX_OPEN_CALLS_EACH,
    "message of a gRPC call without a credential": messages.OPEN_BYTES,
    "time between two messages of a stream of transactions": grpc_connection.STREAM_SILENCE_SECONDS,
    "duration of a stream of transactions": grpc_connection.STREAM_SECONDS,
    "message of a read, or about organizations and vaults": inbound.READ_BYTES,
    "message of a `BatchRead`": inbound.BATCH_READ_BYTES,
    "fields of a message, besides operations and keys": messages.SPARE_FIELDS,
    "frames of a gRPC connection that are read in one turn": flow_control.FRAMES_A_TURN,
    "frames without content on a gRPC connection": flow_control.SPARE_FRAMES,
    "calls under way on one gRPC connection": flow_control.MAX_STREAMS,
    "head of a gRPC call": flow_control.MAX_HEAD_BYTES,
    "calls that a gRPC client may reset beyond those that were answered": grpc_connection.SPARE_RESETS,
    "shortest deadline of a gRPC call": metadata.SHORTEST_NANOS,
    "time before the first frame of a gRPC connection": grpc_connection.PREFACE_SECONDS,
    "time without a call on a gRPC connection": grpc_connection.IDLE_SECONDS,
    "silence before a ping on a gRPC connection": grpc_connection.PING_SECONDS,
    "silence after which a gRPC connection counts as lost": grpc_connection.SILENCE_SECONDS,
    "silence while a gRPC message arrives": grpc_connection.UPLOAD_SILENCE_SECONDS,
    "time for a gRPC message to arrive": grpc_connection.UPLOAD_SECONDS,
    "time that a client of gRPC may leave an answer unread": grpc_connection.STALL_SECONDS,
    "length of a gRPC status message": metadata.MAX_MESSAGE_CHARACTERS,
    "length of a gateway's name": deltas_limits.MAX_GATEWAY_CHARACTERS,
    "length of a `clientId`": deltas_limits.MAX_CLIENT_CHARACTERS,
    "length of a `rowId`": deltas_limits.MAX_ROW_CHARACTERS,
    "length of a table's or a column's name": deltas_limits.MAX_TABLE_CHARACTERS,
    "levels of a push's JSON": MAX_DEPTH,
    "clock of a client ahead of ours": MAX_DRIFT_MS,
    "columns of a row over its life, and of a delta": deltas_limits.MAX_COLUMNS,
    "columns in a repair": deltas_limits.REPAIRED_COLUMNS,
    "clients without a push whose cursors a process remembers": deltas_shown.MAX_SHOWN,
    "merged row, with its stamps": deltas_limits.MAX_ROW_BYTES,
    "deltas in the `details` of a refusal": deltas_refusals.MAX_FLAWS,
    "entries of a page": deltas_limits.MAX_PAGE,
    "content of a page of entries, roughly": deltas_limits.PAGE_BYTES,
    "cursors of pushes that are kept for a client, minimum": deltas_limits.KEPT_ALIASES,
    "cursors of pushes that are kept for a client, maximum": deltas_limits.MAX_ALIASES,
    "tables of a gateway that have a schema": deltas_limits.MAX_TABLES,
    "sync rules": deltas_limits.MAX_RULES_BYTES,
    "buckets of sync rules": deltas_limits.MAX_BUCKETS,
    "filters of a bucket": deltas_limits.MAX_FILTERS,
    "checkpoints that are written or sent at once": spool_files.MAX_AT_ONCE,
    "checkpoints of one caller that are written or sent at once": spool_files.MAX_EACH,
    "free disk space that checkpoints leave": spool_files.FREE_BYTES,
    "frames of a WebSocket of deltas that wait to be answered": connection_limits.MAX_MESSAGES,
    "wait of a WebSocket push for room in the queue of writes": deltas_conversation.ROOM_SECONDS,
    "silence before a ping on a WebSocket of deltas": deltas_conversation.PING_SECONDS,
    "name of a stored token": token_wire.MAX_NAME,
    "scopes of a stored token": token_wire.MAX_SCOPES,
    "length of a scope of a stored token": token_wire.MAX_SCOPE,
    "overlap of a rotation": token_wire.MAX_OVERLAP_MS,
    "body of a request about tokens": token_calls.MAX_BODY_BYTES,
    "length of a JWT": jwt_claims.MAX_TOKEN_BYTES,
    "length of `sub` and `client_id`": jwt_claims.MAX_IDENTITY_BYTES,
    "names in one claim": jwt_claims.MAX_NAMES,
    "clock of the issuer ahead of ours": jwt_claims.LEEWAY_MS,
    "keys tried for a JWT that names none": jwt_keys.MAX_TRIED,
    "keys in the key file": jwt_keys.MAX_KEYS,
    "length of the key file": jwt_keys.MAX_FILE_BYTES,
    "time of a fetch of keys from a URL": jwks_url.FETCH_SECONDS,
    "shortest time between two fetches of keys": jwks_url.MISS_SECONDS,
    "shortest use of fetched keys": jwks_url.MIN_AGE_SECONDS,
    "longest use of fetched keys": jwks_url.MAX_AGE_SECONDS,
    "time between two checks of the key file": jwt_keys.LOOK_MS,
    "verified JWTs remembered": jwt_tokens.MAX_REMEMBERED,
    "names in the claims of remembered JWTs": jwt_tokens.MAX_REMEMBERED_NAMES,
    "soft changes that wait for a commit": MAX_WAITING,
    "soft changes in one commit": MAX_TOUCHES,
    "delay of freeing an ended stream": SWEEP_GRACE_MS,
    "raises of the [epoch](../operating/backup.md#restore)": MAX_RAISES,
    "ended epochs that a stream remembers": KEPT_EPOCHS,
    "gaps between epochs that a gateway remembers apart": KEPT_GAPS,
    "time between two log lines about event cursors beyond the log or of a lost epoch": LOG_EVERY_MS,
    "jump of the clock that is followed at once": JUMP_MS,
    "audit lines waiting for the disk": rotated_file.MAX_WAITING_BYTES,
    "burst of audit lines of one source": PACED_LINES.burst,
    "time until a source may write one more audit line": PACED_LINES.refill_ms,
    "burst of important audit lines of one source": IMPORTANT_LINES.burst,
    "time until a source may write one more important audit line": IMPORTANT_LINES.refill_ms,
    "sources of audit lines with a rate limit of their own": audit_rate_limit.MAX_SOURCES,
    "length of a text in an audit line": audit_log.MAX_TEXT,
    "length of an audit line": audit_log.MAX_LINE_BYTES,
    "size of `audit.jsonl`, `audit-important.jsonl` and `alerts.jsonl`": rotated_file.MAX_BYTES,
    "rotated files of each that are kept": rotated_file.KEPT,
    "wait of an answer for its audit line": audit_log.WAIT_SECONDS,
    "log lines of the same warning or error in one period": logs.TOLD_AT_ONCE,
    "that period": logs.TOLD_SECONDS,
    "warnings and errors that are counted separately": logs.MAX_COMPLAINTS,
    "identity of a look-up": lookup.MAX_ID_BYTES,
    "writes that a look-up finds": lookup.MAX_MATCHES,
    "scopes that a look-up without a place tries": lookup.MAX_PROBES,
    "time of a look-up": lookup.MAX_SECONDS,
    "look-ups at a time": find_calls.MAX_AT_ONCE,
    "look-ups that wait": find_calls.MAX_WAITING,
    "retries of a write that are kept": retry_table.KEPT_RETRIES,
    "writes with counted retries": retry_table.MAX_ROWS,
    "retries that wait to be counted": retry_log.MAX_WAITING,
    "writes whose counts wait to be stored": retry_log.MAX_UNSAVED,
    "lines of a log in a diagnosis": logs.LOG_LINES,
    "length of a log line in a diagnosis": logs.MAX_LINE_BYTES,
    "bytes at the end of a log that are searched for them": diagnosis_bundle.MAX_TAIL_BYTES,
    "logs in a diagnosis": diagnosis_bundle.MAX_LOGS,
    "oldest jobs of each kind in a diagnosis": jobs_diagnosis.OLDEST_JOBS,
    "transactions of a node at once": PgAddress("").lanes,
    "connections for reads": PgAddress("").readers,
    "wait for a database that cannot be reached": PgAddress("").patience_ms,
    "time of one exchange with the database": BUSY_SHARE,
    "wait for locks of other transactions": LOCK_SHARE,
    "slots for named locks": SLOTS,
    "notifications to other nodes that wait to be sent": MAX_HINTS,
    "content of one append, or one line": LARGEST_BYTES,
    "tries after the first": RETRIES,
}
