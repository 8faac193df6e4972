"""The documentation says what the code says: tables, links and command lines cannot drift."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import Field
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from semel.cli.deltas.rows import MOST_COLUMNS
from semel.cli.main import main
from semel.cli.requests import RETRIES
from semel.cli.source import LARGEST_BYTES
from semel.engine.batch import MAX_TOUCHES
from semel.engine.engine import EngineLimits
from semel.engine.soft_changes import MAX_WAITING
from semel.kernel import keys
from semel.kernel.clock import JUMP_MS
from semel.kernel.errors import REGISTRY
from semel.kernel.hlc import MAX_DRIFT_MS
from semel.kernel.json import canonical, outline
from semel.kernel.json.text import MAX_DEPTH
from semel.kernel.producer import MAX_NUMBER
from semel.server import thread_pool
from semel.server.auth import jwt_claims, jwt_keys, jwt_tokens
from semel.server.grpc import call as grpc_call
from semel.server.grpc import connection as grpc_connection
from semel.server.grpc import flow_control, messages, metadata
from semel.server.grpc import server as grpc_server
from semel.server.http import connection_limit, protocol, reader
from semel.server.ops import audit_log, audit_rate_limit, diagnosis_bundle, logs, rotated_file
from semel.server.ops.audit_log import CLASSES, IMPORTANT_LINES, PACED_LINES, LineClass
from semel.server.ops.metrics import AUTH_COUNTS
from semel.server.setting_values import is_secret
from semel.server.settings_loader import ALIASES, PREFIX, setting_fields
from semel.server.websocket import connection_limits, transport
from semel.store.postgres.address import PgAddress
from semel.store.postgres.connection import BUSY_SHARE, LOCK_SHARE
from semel.store.postgres.locks import SLOTS
from semel.store.postgres.notify import MAX_WAITING as MAX_HINTS
from semel.store.sqlite import SqliteFileStore
from semel.surfaces.deltas import commands as deltas_refusals
from semel.surfaces.deltas import conversation as deltas_conversation
from semel.surfaces.deltas import limits as deltas_limits
from semel.surfaces.deltas import spool_files
from semel.surfaces.deltas.rules import cursors as deltas_shown
from semel.surfaces.deltas.rules.gateways import KEPT_GAPS
from semel.surfaces.epoch_raise import MAX_RAISES
from semel.surfaces.events import conversation, feed, http_stream, subscriber
from semel.surfaces.events import limits as events_limits
from semel.surfaces.events import socket as events_socket
from semel.surfaces.events.contract import PRUNED_AT_ONCE
from semel.surfaces.events.service import LOG_EVERY_MS
from semel.surfaces.jobs import contract as jobs_contract
from semel.surfaces.jobs import diagnosis as jobs_diagnosis
from semel.surfaces.jobs import limits as jobs_limits
from semel.surfaces.jobs import long_poll, maintenance
from semel.surfaces.jobs import reading as jobs_reading
from semel.surfaces.jobs import service as jobs_parts
from semel.surfaces.jobs.metrics import COUNTS, GAUGES, HITS
from semel.surfaces.jobs.rules import claim, cron, reaper
from semel.surfaces.ledger import block_watch, calls, pagination, validation
from semel.surfaces.ledger import contract as ledger_contract
from semel.surfaces.ledger import limits as ledger_limits
from semel.surfaces.ledger.grpc import requests as inbound
from semel.surfaces.ledger.wire import bodies as ledger_requests
from semel.surfaces.ledger.wire import members as ledger_members
from semel.surfaces.streams.http import MAX_LISTED
from semel.surfaces.streams.reading import PAGE_ROWS
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS
from semel.surfaces.streams.rules.offsets import KEPT_EPOCHS
from semel.surfaces.streams.wire import headers, requests
from tests.running import RunningServer

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))

# The rows of limits.md that are constants of the code; the others name a setting.
CONSTANTS = {
    "length of an `Idempotency-Key`": keys.MAX_KEY_LENGTH,
    "length of a stream's name": headers.MAX_NAME_BYTES,
    "length of a `Content-Type`": requests.MAX_CONTENT_TYPE_BYTES,
    "length of a `Stream-Seq`": requests.MAX_STREAM_SEQ_BYTES,
    "length of a `Producer-Id`": headers.MAX_PRODUCER_ID_BYTES,
    "`Producer-Epoch` and `Producer-Seq`": MAX_NUMBER,
    "digits of a `Stream-TTL`": headers.MAX_TTL_DIGITS,
    "levels of JSON": MAX_DEPTH,
    "chunk extensions and trailers of a body, beyond `20` bytes a chunk": reader.MAX_EXCESS_BYTES,
    "heads and chunks of a connection that are parsed in one turn": reader.SLICE_BYTES,
    "bytes that it reads in this time if it is only slow": protocol.STALL_BYTES,
    "file descriptors kept back for the store and the log": connection_limit.RESERVED_FILES,
    "bytes in a batch": EngineLimits().batch.bytes,
    "rows that a batch may touch, roughly": EngineLimits().batch.cost,
    "stored payloads that a batch has to look at": EngineLimits().batch.loaded,
    "looks at the store at once": SqliteFileStore.readers,
    "appends of a page": PAGE_ROWS,
    "streams in a listing": MAX_LISTED,
    "length of an event's `id`": events_limits.MAX_ID_BYTES,
    "length of an `instance` in `connect`": events_limits.MAX_INSTANCE_BYTES,
    "length of a partition's name": events_limits.MAX_NAME_BYTES,
    "partitions of an event, or in a `sync`": events_limits.MAX_NAMES,
    "levels of an event": events_limits.EVENT_LEVELS,
    "event as a reader is sent it": events_limits.EventLimits().message_bytes - events_limits.EventLimits().head_bytes,
    "room for the names in a page": events_limits.HEAD_BYTES,
    "name of a request that its answer repeats": events_limits.REPLY_BYTES,
    "messages of a connection that wait to be handled": connection_limits.MAX_MESSAGES,
    "wait for room in the queue of writes": conversation.ROOM_SECONDS,
    "message that is read beside the others' work": thread_pool.APART_BYTES,
    "values of a message, or of an event that is shown, roughly": outline.LIGHT_BYTES,
    "message of a client that has not connected": events_socket.UNAUTHENTICATED_BYTES,
    "frames of a connection looked at in one turn": transport.FRAMES_A_TURN,
    "live events sent in one turn": feed.FRAMES_PER_TURN,
    "answered retries that a live reader is not sent again": subscriber.MAX_ANSWERED,
    "time to see why a connection closes": transport.LINGER_SECONDS,
    "events of a page": events_limits.PAGE_MOST,
    "events that a live reader is refilled with at once": subscriber.PAGE_EVENTS,
    "what the feed of live events reads at once": feed.READ_BYTES,
    "pace of comments on an idle event stream": http_stream.COMMENT_SECONDS,
    "events freed in one write": PRUNED_AT_ONCE,
    "`committed_id`": events_limits.MAX_COMMITTED_ID,
    "body of a request for jobs": jobs_limits.MAX_BODY_BYTES,
    "body of jobs that is read beside the others' work": thread_pool.APART_BYTES,
    "`params`, canonical": jobs_limits.MAX_PARAMS_BYTES,
    "levels of `params`, of a result or an error": canonical.MAX_DEPTH,
    "`client`, canonical": jobs_limits.MAX_CLIENT_BYTES,
    "length of a key of jobs, or of a step": jobs_limits.MAX_KEY_CHARACTERS,
    "length of a `kind`, a `worker_id`, a schedule's name, an error's `code`": jobs_limits.MAX_NAME_CHARACTERS,
    "length of a queue's name": jobs_limits.MAX_QUEUE_CHARACTERS,
    "length of a `claim_id`": jobs_limits.MAX_CLAIM_ID_CHARACTERS,
    "`delay_ms` of a submission": jobs_limits.MAX_DELAY_MS,
    "`delay_ms` of a deferral, `retry_after_ms`": jobs_limits.MAX_DEFER_MS,
    "`max_attempts`": jobs_limits.MAX_ATTEMPTS,
    "`lease_sec`": jobs_limits.MAX_LEASE_SEC,
    "`timeout_ms` of a job, `default_timeout_ms` of a queue": jobs_limits.MAX_TIMEOUT_MS,
    "`wait_ms`": jobs_limits.MAX_WAIT_MS,
    "jobs of one claim": jobs_limits.MAX_CLAIM_JOBS,
    "kinds, or queues, that a claim names": jobs_limits.MAX_CLAIM_NAMES,
    "jobs of one batch": jobs_limits.MAX_BATCH_JOBS,
    "steps of a job": jobs_limits.MAX_STEPS,
    "`progress`, canonical": jobs_limits.MAX_PROGRESS_BYTES,
    "an `error`, canonical": jobs_limits.MAX_ERROR_BYTES,
    "length of a deferral's `reason`": jobs_limits.MAX_REASON_CHARACTERS,
    "errors that a job remembers": jobs_limits.ERRORS_KEPT,
    "length of each one's `message`": jobs_limits.MAX_MESSAGE_BYTES,
    "jobs, or dead letters, of a page": jobs_limits.MAX_LIST_JOBS,
    "kinds and queues, each pair counted for each state, that a page of filtered jobs is merged from": (
        jobs_limits.MAX_LISTED_LINES
    ),
    "rows looked at for a page of jobs then": jobs_limits.MAX_LISTED_ROWS,
    "`max_inflight` of a queue": jobs_limits.MAX_QUEUE_LIMIT,
    "queues in the listing of queues": jobs_reading.MAX_QUEUES,
    "schedules in their listing": jobs_reading.MAX_SCHEDULES,
    "length of a cron line": cron.MAX_CHARACTERS,
    "missed instants that `catch_up` `all` makes up for": jobs_limits.MAX_CATCH_UP,
    "schedules looked at in one round": maintenance.TICKS_AT_ONCE,
    "workers of a node that wait for a job": long_poll.MAX_LONG_POLLS,
    "waiting workers whose claims are tried at once": long_poll.MOST_AT_ONCE,
    "queues with priorities (lines) that a claim looks into": claim.MAX_LINES,
    "pace of looking for leases that ran out": maintenance.REAP_SECONDS,
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
    "value that a failed condition tells": ledger_limits.MAX_TOLD_VALUE_BYTES,
    "keys of a `batchRead`": ledger_limits.MAX_BATCH_KEYS,
    "values that a `batchRead` tells": ledger_limits.MAX_ANSWER_BYTES,
    "blocks of a range": ledger_limits.MAX_RANGE_BLOCKS,
    "content of a range of blocks, roughly": ledger_limits.MAX_RANGE_BYTES,
    "headers of a `chainProof`": ledger_limits.MAX_CHAIN_HEADERS,
    "items of a page of the ledger": ledger_limits.MAX_PAGE,
    "rows looked at for a page of the ledger": ledger_limits.MAX_LISTED_ROWS,
    "content of a page of the ledger, roughly": ledger_limits.MAX_PAGE_BYTES,
    "blocks above the height of a list that are looked through for what they changed": ledger_limits.MAX_RECENT_BLOCKS,
    "operations in these blocks": ledger_limits.MAX_RECENT_BYTES,
    "strings, brackets and commas of a body with operations or keys": ledger_requests.PIECES_EACH,
    "those of another body of the ledger": ledger_members.MOST_PIECES,
    "length of a page token of the ledger": pagination.MAX_TOKEN_CHARACTERS,
    "body of the ledger that is read beside the others' work": thread_pool.APART_BYTES,
    "pace of comments on an idle stream of blocks": calls.KEEPALIVE_SECONDS,
    "blocks that a watcher may be behind without reading": ledger_limits.WATCH_BEHIND,
    "bytes of an event stream that wait in the system's buffer": calls.UNSENT_BYTES,
    "time to tell a watcher why it is cut off": calls.LAST_WORDS_SECONDS,
    "blocks that a watcher is given at once": block_watch.PAGE_HEADERS,
    "time that a watcher may take for them without being behind": block_watch.SLOW_SECONDS,
    "pace of looking for blocks that nobody announced": block_watch.LOOK_AGAIN_SECONDS,
    "blocks freed in one write": ledger_contract.FREED_BLOCKS,
    "forgotten clients freed in one write": ledger_contract.FREED_STREAMS,
    "places looked at in one sweep": ledger_contract.PLACES_AT_ONCE,
    "`ttlSeconds` of an organization": ledger_limits.MAX_TTL_SECONDS,
    "`evictionInterval` of an organization": ledger_limits.MAX_INTERVAL,
    "`retentionBlocks` of a vault": validation.MAX_RETAINED,
    "connections of gRPC": grpc_server.MAX_CONNECTIONS,
    "calls of gRPC under way": grpc_server.MAX_CALLS,
    "calls of gRPC under way that need no credential": grpc_server.MAX_OPEN_CALLS,
    "such calls on one connection": grpc_server.MAX_OPEN_CALLS_EACH,
    "message of such a call": messages.OPEN_BYTES,
    "messages of a call for reflection that wait for an answer": grpc_call.MAX_WAITING,
    "time between two messages of such a call": grpc_connection.QUESTION_SECONDS,
    "time for such a call": grpc_connection.QUESTIONS_SECONDS,
    "message of a read, or about organizations and vaults": inbound.READ_BYTES,
    "message of a `BatchRead`": inbound.BATCH_READ_BYTES,
    "fields of a message, besides operations and keys": messages.SPARE_FIELDS,
    "frames of a connection read in one turn": flow_control.FRAMES_A_TURN,
    "frames that carry nothing, to spare": flow_control.SPARE_FRAMES,
    "calls under way on one connection": flow_control.MAX_STREAMS,
    "head of a call": flow_control.MAX_HEAD_BYTES,
    "calls that a client may take back, beyond those that were answered": grpc_connection.SPARE_RESETS,
    "shortest deadline of a call": metadata.SHORTEST_NANOS,
    "time before the first frame of a connection": grpc_connection.PREFACE_SECONDS,
    "time without a call on a connection": grpc_connection.IDLE_SECONDS,
    "silence after which a connection is asked for a sign of life": grpc_connection.PING_SECONDS,
    "silence after which it counts as lost": grpc_connection.SILENCE_SECONDS,
    "silence while a message arrives": grpc_connection.UPLOAD_SILENCE_SECONDS,
    "time for a message to arrive": grpc_connection.UPLOAD_SECONDS,
    "time that a client of gRPC may leave an answer unread": grpc_connection.STALL_SECONDS,
    "length of a status message": metadata.MAX_MESSAGE_CHARACTERS,
    "length of a gateway's name": deltas_limits.MAX_GATEWAY_CHARACTERS,
    "length of a `clientId`": deltas_limits.MAX_CLIENT_CHARACTERS,
    "length of a `rowId`": deltas_limits.MAX_ROW_CHARACTERS,
    "length of a table's or a column's name": deltas_limits.MAX_TABLE_CHARACTERS,
    "levels of a push's JSON": MAX_DEPTH,
    "clock of a client ahead of ours": MAX_DRIFT_MS,
    "columns that one row can ever have had, or that a delta has": deltas_limits.MAX_COLUMNS,
    "columns that a repair tells": deltas_limits.REPAIRED_COLUMNS,
    "clients that have only pulled, and whose cursors a process remembers": deltas_shown.MAX_SHOWN,
    "merged row, with its stamps": deltas_limits.MAX_ROW_BYTES,
    "deltas that a refusal names in `details`": deltas_refusals.MAX_FLAWS,
    "entries of a page": deltas_limits.MAX_PAGE,
    "content of a page of entries, roughly": deltas_limits.PAGE_BYTES,
    "cursors of pushes that a client's pulls may come back to, at least": deltas_limits.KEPT_ALIASES,
    "the same, at most": deltas_limits.MAX_ALIASES,
    "tables of a gateway that have a schema": deltas_limits.MAX_TABLES,
    "sync rules": deltas_limits.MAX_RULES_BYTES,
    "buckets of sync rules": deltas_limits.MAX_BUCKETS,
    "filters of a bucket": deltas_limits.MAX_FILTERS,
    "checkpoints that are made or sent at once": spool_files.MAX_AT_ONCE,
    "the same of one caller": spool_files.MAX_EACH,
    "room that they leave on the disk": spool_files.FREE_BYTES,
    "frames of a WebSocket of deltas that wait to be answered": connection_limits.MAX_MESSAGES,
    "wait of such a push for room in the queue of writes": deltas_conversation.ROOM_SECONDS,
    "silence after which such a client is asked for a sign of life": deltas_conversation.PING_SECONDS,
    "length of a JWT": jwt_claims.MAX_TOKEN_BYTES,
    "length of `sub` and `client_id`": jwt_claims.MAX_IDENTITY_BYTES,
    "names in one claim": jwt_claims.MAX_NAMES,
    "clock of the issuer ahead of ours": jwt_claims.LEEWAY_MS,
    "keys tried for a JWT that names none": jwt_keys.MAX_TRIED,
    "keys in the key file": jwt_keys.MAX_KEYS,
    "length of the key file": jwt_keys.MAX_FILE_BYTES,
    "pace of looking at the key file": jwt_keys.LOOK_MS,
    "verified JWTs remembered": jwt_tokens.MAX_REMEMBERED,
    "names in the claims of those": jwt_tokens.MAX_REMEMBERED_NAMES,
    "soft changes waiting": MAX_WAITING,
    "soft changes in one commit": MAX_TOUCHES,
    "delay of freeing an ended stream": SWEEP_GRACE_MS,
    "raises of the [epoch](../operating/running.md#backup)": MAX_RAISES,
    "ended epochs that a stream remembers": KEPT_EPOCHS,
    "gaps between epochs that a gateway remembers apart": KEPT_GAPS,
    "pace of the log line on cursors of events beyond the log or of a lost epoch": LOG_EVERY_MS,
    "jump of the clock that is taken at once": JUMP_MS,
    "audit lines waiting for the disk": rotated_file.MAX_WAITING_BYTES,
    "audit lines of one source at once": PACED_LINES.burst,
    "time until one more of them": PACED_LINES.refill_ms,
    "important audit lines of one source at once": IMPORTANT_LINES.burst,
    "time until one more important one": IMPORTANT_LINES.refill_ms,
    "sources of audit lines that are told apart": audit_rate_limit.MAX_SOURCES,
    "length of a text in an audit line": audit_log.MAX_TEXT,
    "length of an audit line": audit_log.MAX_LINE_BYTES,
    "size of `audit.jsonl`, `audit-important.jsonl` and `alerts.jsonl`": rotated_file.MAX_BYTES,
    "files of each that were moved aside": rotated_file.KEPT,
    "wait of an answer for its audit line": audit_log.WAIT_SECONDS,
    "lines of the same warning or error in a while": logs.TOLD_AT_ONCE,
    "such a while": logs.TOLD_SECONDS,
    "warnings and errors that are told apart": logs.MAX_COMPLAINTS,
    "lines of a log in a diagnosis": logs.LOG_LINES,
    "length of such a line": logs.MAX_LINE_BYTES,
    "end of a log that is looked at for them": diagnosis_bundle.MAX_TAIL_BYTES,
    "logs in a diagnosis": diagnosis_bundle.MAX_LOGS,
    "oldest jobs of each kind in a diagnosis": jobs_diagnosis.OLDEST_JOBS,
    "transactions of a node at once": PgAddress("").lanes,
    "connections for reads": PgAddress("").readers,
    "wait for a database that is away": PgAddress("").patience_ms,
    "one exchange with the database": BUSY_SHARE,
    "wait for locks that others hold": LOCK_SHARE,
    "slots for named locks": SLOTS,
    "hints waiting to be sent": MAX_HINTS,
    "content of one append, or one line": LARGEST_BYTES,
    "tries after the first": RETRIES,
    "columns of the flat files of one export": MOST_COLUMNS,
}


def tables(page: Path, columns: int) -> list[list[str]]:
    """The rows of a page's tables that have so many columns, without heads and rules."""
    lines = page.read_text("utf-8").split("\n")
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    heads = {number for number, line in enumerate(lines) if re.fullmatch(r"\|(?:-+\|)+", line)}
    numbers = [number for number, line in enumerate(lines) if line.startswith("|")]
    body = [row for number, row in zip(numbers, rows, strict=True) if number not in heads and number + 1 not in heads]
    return [row for row in body if len(row) == columns]


def code(cell: str) -> str:
    """The first code span of a cell; empty without one."""
    found = re.search(r"`([^`]+)`", cell)
    return "" if found is None else found[1]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_every_error_has_its_row() -> None:
    rows = tables(DOCS / "reference/errors.md", 5)
    assert all(row[4] for row in rows), "a row without advice"
    written = [(code(row[0]), row[1], row[2], row[3]) for row in rows]
    assert written == [(kind.code, str(kind.status), kind.title, kind.retry.value) for kind in REGISTRY.values()]


def test_every_setting_has_its_row() -> None:
    rows = tables(DOCS / "reference/settings.md", 5)
    written = {code(row[0]): (code(row[1]), code(row[2]), code(row[3]) or row[3]) for row in rows}
    wanted = {f"{PREFIX}{one.name.upper()}": (flag_of(one), one.name, shown(one.default)) for one in setting_fields()}
    assert written == wanted
    assert len(rows) == len(written), "a setting has two rows"


def flag_of(one: Field[Any]) -> str:
    """The flag of a setting; secrets have none."""
    return "" if is_secret(one) else "--" + one.name.replace("_", "-")


def test_every_other_name_of_a_setting_has_its_row() -> None:
    rows = tables(DOCS / "reference/settings.md", 2)
    written = {code(row[0]): tuple(re.findall(r"`([^`]+)`", row[1])) for row in rows}
    assert written == {f"{PREFIX}{name.upper()}": aliases for name, aliases in ALIASES.items()}


def test_every_count_has_its_names_in_json() -> None:
    rows = tables(DOCS / "operating/running.md", 2)
    written = {tuple(re.findall(r"`(\w+)`", row[0])): code(row[1]) for row in rows if "`semel_" in row[1]}
    counts = (*COUNTS, *AUTH_COUNTS)
    wanted = {one.json: f"{one.series}_total" for one in counts if one.json} | {one.json: one.series for one in GAUGES}
    assert written == {**wanted, (HITS,): "semel_jobs_idempotent_total"}


def shown(default: object) -> str:
    """A default as the page writes it."""
    if default == "":
        return "(empty)"
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_every_limit_has_the_value_of_the_code() -> None:
    rows = tables(DOCS / "reference/limits.md", 5)
    assert set(CONSTANTS) <= {row[0] for row in rows}
    defaults = {PREFIX + one.name.upper(): one.default for one in setting_fields()}
    for name, value, setting, *_ in rows:
        wanted = CONSTANTS[name] if name in CONSTANTS else defaults[code(setting)]
        assert code(value) == str(wanted) or float(code(value)) == wanted, name


def test_b2_every_audit_event_has_its_row_and_its_class() -> None:
    rows = {code(row[0]): row[3] for row in tables(DOCS / "operating/audit.md", 4) if code(row[0]).isupper()}
    assert set(rows) == set(CLASSES)
    marks = {LineClass.IMPORTANT: "important", LineClass.PACED: "paced", LineClass.RARE: "rarely"}
    for event, kind in CLASSES.items():
        told = [mark for mark in marks.values() if mark in rows[event]]
        assert told == ([marks[kind]] if kind in marks else []), event


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The kinds of all metrics that a running server tells, by name."""
    with RunningServer(tmp_path_factory.mktemp("docs") / "data") as server:
        text = httpx.get(server.url + "/metrics", headers={"Accept": "text/plain"}).text
    told = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    return {name: kind for name, kind in told if not name.endswith("_created")}


def test_every_metric_has_its_row(metrics: dict[str, str]) -> None:
    rows = tables(DOCS / "operating/running.md", 3)
    assert {code(row[0]): row[1] for row in rows if row[0].startswith("`semel_")} == metrics


def test_no_page_names_a_metric_that_is_not_there(metrics: dict[str, str]) -> None:
    named = {name for page in PAGES for name in re.findall(r"\bsemel_[a-z_]+", prose(page))}
    assert named - {"semel_once", "semel_outbox"} <= set(metrics)  # these are tables of the library


def links(page: Path) -> Iterator[str]:
    """Where a page leads to, but for other sites."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_the_map_shows_every_page() -> None:
    index = DOCS / "index.md"
    shown_pages = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert set(DOCS.rglob("*.md")) - {index} <= shown_pages


def command_lines(page: Path) -> Iterator[list[str]]:
    """The `semel` commands in a page's code blocks, as words; what the page gives a name to is put in for the name."""
    named: dict[str, str] = {}
    for block in re.findall(r"^```console$(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").split("\n"):
            given = re.fullmatch(r"\$ ([A-Z]+)=(\w+)", line)
            if given:
                named[given[1]] = given[2]
            elif line.startswith("$ "):
                filled = re.sub(r"\$([A-Z]+)", lambda found: named.get(found[1], found[0]), line[2:])
                lexer = shlex.shlex(filled, posix=True, punctuation_chars="|")
                lexer.whitespace_split = True
                words = list(lexer)
                if "|" in words:
                    words = words[words.index("|") + 1 :]
                if Path(words[0]).name == "semel":
                    yield words[1:]


COMMANDS = [(page.relative_to(ROOT), words) for page in PAGES for words in command_lines(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda value: " ".join(value) if type(value) is list else "")
def test_command_lines_parse(page: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shown command exists, with its options and arguments; nothing is run."""
    monkeypatch.chdir(tmp_path)
    for option, value in pairwise(words):
        if option == "--file":
            Path(value).touch()
    command: click.Command = main
    context = click.Context(main)
    rest = list(words)
    while isinstance(command, click.Group) and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        assert found is not None, f"{page}: there is no command {rest[0]}"
        command, rest = found, rest[1:]
    try:
        with command.make_context("semel", list(rest)):
            assert not isinstance(command, click.Group), f"{page}: {words} names no command"
    except click.exceptions.Exit:
        assert rest in (["--help"], ["--version"])


def test_command_lines_were_found() -> None:
    assert {str(page) for page, _ in COMMANDS} >= {"README.md", "docs/reference/cli.md", "docs/operating/running.md"}


def test_the_reference_shows_every_command() -> None:
    page = (DOCS / "reference/cli.md").read_text("utf-8")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        parts = command.list_commands(context) if isinstance(command, click.Group) else [""]
        for part in parts:
            assert f"## semel {name} {part}".rstrip() in page
