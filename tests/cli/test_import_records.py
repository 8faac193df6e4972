"""Reading a Sheratan key store: layouts of the file, and the judgement of each record."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from semel.surfaces.jobs.wire.imported_records import (
    ImportEntry,
    ImportLimits,
    ImportRecord,
    ImportRecordError,
    LayoutError,
    entries,
    is_expired,
    read_record,
)

HASH = "fbfb837ff1cf3c8564f7d01a7b3b86cfe9fe5a6e56a55cd93d65fc4cf93a5318"
REQUEST = "0190f0d2-6f7a-7c3e-9d5b-1a2b3c4d5e6f"
NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
HOUR_MS = 3_600_000
LIMITS = ImportLimits(NOON_MS, 24 * HOUR_MS, 1_000)

ONE = '{"key": "a", "payload_hash": "h"}'
TWO = '{"key": "b",\n "payload_hash": "h"}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"[{ONE},\n\n {TWO}]", [(1, None, ONE), (3, None, TWO)]),
        ("[]", []),
        ("[ ]", []),
        ("{}", []),
        ('{"a": {"x": 1},\n"b": [2]}', [(1, "a", '{"x": 1}'), (2, "b", "[2]")]),
        (f'{{"version": 1, "records": [{ONE},\n{TWO}]}}', [(1, None, ONE), (2, None, TWO)]),
        ('{"records": {\n"a": {"x": 1},\n"\\u0062": {}}}', [(2, "a", '{"x": 1}'), (3, "b", "{}")]),
        (ONE, [(1, None, ONE)]),
        (f"\n{TWO}\n", [(2, None, TWO)]),
        (f"{ONE}\n\n{ONE}\r\nnot json\n", [(1, None, ONE), (3, None, ONE), (4, None, "not json")]),
        (f"{{broken}}\n{ONE}", [(1, None, "{broken}"), (2, None, ONE)]),
        ("\ufeff[1]", [(1, None, "1")]),
    ],
)
def test_every_layout(text: str, found: list[tuple[int, str | None, str]]) -> None:
    assert [tuple(entry) for entry in entries(text.encode())] == found


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "it holds neither an object nor a list"),
        (b"7", "it holds neither an object nor a list"),
        (b'[{"a": 1},\n', "it is not JSON at line 2"),
        (b'[{"a": 1}\n{"b": 1}]', "it is not JSON at line 2"),
        (b"[1,]", "it is not JSON at line 1"),
        (b'{"a": {"x": 1},\n"b" 2}', "it is not JSON at line 2"),
        (b'{"records": [1\n\n', "it is not JSON at line 3"),
        (b"{\n7: 1}", "it is not JSON at line 2"),
        (b'["\xff"]', "it is not UTF-8 at byte 2"),
        (b"[" * 5_000, "it is nested more than 72 levels deep"),
    ],
)
def test_a_file_that_breaks_off_is_told_by_its_line(raw: bytes, sentence: str) -> None:
    with pytest.raises(LayoutError) as refusal:
        entries(raw)
    assert str(refusal.value) == sentence


def record(name: str | None = None, **changes: Any) -> ImportRecord:
    fields = {
        "key": "abc123",
        "payload_hash": HASH,
        "request_id": REQUEST,
        "job_id": "job_123",
        "status": "completed",
        "created_utc": "2026-01-01T10:00:00Z",
        "last_seen_utc": "2026-01-01T11:00:00Z",
        "response_hash": "0" * 64,
        "cached_result": {"ok": True, "result": {"b": 1.0, "a": [None]}},
    }
    kept = {name: value for name, value in (fields | changes).items() if value is not ...}
    return read_record(ImportEntry(7, name, json.dumps(kept)), LIMITS)


def test_a_whole_record() -> None:
    assert record() == ImportRecord(
        line=7,
        key="abc123",
        payload_hash=bytes.fromhex(HASH),
        request=UUID(REQUEST).bytes,
        job="job_123",
        has_odd_job=False,
        created_ms=NOON_MS - 2 * HOUR_MS,
        ended_ms=NOON_MS - HOUR_MS,
        is_unfinished=False,
        ok=True,
        value=b'{"a":[null],"b":1}',
    )
    assert record("abc123", key=...).key == "abc123"
    assert record(payload_hash="sha256:" + HASH.upper()).payload_hash == bytes.fromhex(HASH)


@pytest.mark.parametrize(
    ("changes", "ok", "value"),
    [
        ({"cached_result": ..., "cached_response": {"ok": True, "result": 7}}, True, 7),
        ({"cached_result": None, "cached_response": {"ok": True, "done": 1}}, True, {"ok": True, "done": 1}),
        ({"cached_result": {"ok": True, "result": None}}, True, None),
        ({"cached_result": "text"}, True, "text"),
        ({"status": "failed", "cached_result": {"ok": False, "error": {"code": "x"}}}, False, {"code": "x"}),
        ({"status": "failed", "cached_result": "no"}, False, {"code": "failed", "message": "no"}),
        ({"status": "failed", "cached_result": {"why": "no"}}, False, {"why": "no"}),
    ],
)
def test_how_a_job_ended(changes: dict[str, Any], ok: bool, value: Any) -> None:
    found = record(**changes)
    assert (found.ok, json.loads(found.value), found.is_unfinished) == (ok, value, False)


@pytest.mark.parametrize("status", ["accepted", "in_progress"])
def test_a_job_that_had_not_ended_has_an_unknown_outcome(status: str) -> None:
    found = record(status=status)
    assert (found.ok, json.loads(found.value)["outcome"], found.is_unfinished) == (False, "unknown", True)


def test_what_was_not_kept_is_told_as_such() -> None:
    assert json.loads(record(cached_result=...).value)["imported"] is True
    assert json.loads(record(status="failed", cached_result=...).value)["code"] == "imported"


@pytest.mark.parametrize(
    ("given", "hours_ago"),
    [
        ("2026-01-01T11:00:00Z", 1),
        ("2026-01-01T11:00:00.000000+00:00Z", 1),
        ("2026-01-01T12:00:00+01:00", 1),
        ("2026-01-01 11:00:00", 1),
        ("2026-01-01T11:00:00", 1),
        (NOON_MS / 1_000 - 3_600, 1),
        (NOON_MS - HOUR_MS, 1),
        ("2030-01-01T00:00:00Z", 0),
    ],
)
def test_times_as_programs_write_them(given: Any, hours_ago: int) -> None:
    assert record(last_seen_utc=given).ended_ms == NOON_MS - hours_ago * HOUR_MS


def test_which_time_counts() -> None:
    assert record(last_seen_utc=...).ended_ms == NOON_MS - 2 * HOUR_MS
    only_seen = record(created_utc=...)
    assert (only_seen.created_ms, only_seen.ended_ms) == (NOON_MS - HOUR_MS,) * 2
    turned = record(created_utc="2026-01-01T11:30:00Z")
    assert turned.created_ms == turned.ended_ms == NOON_MS - HOUR_MS


def test_a_key_expires_a_day_after_it_was_last_heard_of() -> None:
    assert not is_expired(record(last_seen_utc="2025-12-31T12:00:00.001Z", created_utc="2025-01-01"), LIMITS)
    assert is_expired(record(last_seen_utc="2025-12-31T12:00:00.000Z"), LIMITS)


def test_a_record_is_the_same_job_at_every_run() -> None:
    assert record(job_id=...).id_of("p") == UUID(REQUEST).bytes
    assert record().id_of("p") == UUID(REQUEST).bytes + b"123"
    named = record(request_id="req-1").id_of("p")
    made = record(request_id="req-1", job_id=...).id_of("p")
    assert (len(made), made, named) == (16, record(request_id=..., job_id=...).id_of("p"), made + b"123")
    assert (UUID(bytes=made).version, int.from_bytes(made[:6], "big")) == (8, NOON_MS - 2 * HOUR_MS)
    assert made != record(request_id=..., job_id=...).id_of("q")
    assert made != record(request_id=..., job_id=..., key="other").id_of("p")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"status": "done"}, "status must be one of accepted, in_progress, completed, failed"),
        ({"status": ...}, "status must be one of"),
        ({"status": ["failed"]}, "status must be one of"),
        ({"key": ...}, "key is not a non-empty string"),
        ({"key": " "}, "key is not a non-empty string"),
        ({"key": 7}, "key is not a non-empty string"),
        ({"key": "k" * 257}, "key has more than 256 characters, or a control character"),
        ({"key": "a\nb"}, "key has more than 256 characters, or a control character"),
        ({"key": "\ud800"}, "key has a lone surrogate"),
        ({"payload_hash": HASH[:-1]}, "payload_hash is not a SHA-256 of 64 hexadecimal digits"),
        ({"payload_hash": None}, "payload_hash is not a SHA-256"),
        ({"created_utc": ..., "last_seen_utc": ...}, "it has neither created_utc nor last_seen_utc"),
        ({"created_utc": "yesterday"}, "created_utc is not a time"),
        ({"last_seen_utc": True}, "last_seen_utc is not a time"),
        ({"last_seen_utc": -5}, "last_seen_utc is not a time"),
        ({"last_seen_utc": []}, "last_seen_utc is not a time"),
        ({"cached_result": "\ud800"}, "the cached result cannot be kept (surrogate)"),
        ({"cached_result": "x" * 999}, "the cached result has 1001 bytes, more than the limit of 1000"),
    ],
)
def test_faults_are_named_without_their_content(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ImportRecordError) as refusal:
        record(**changes)
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{broken}", "it is not a JSON object that can be read (syntax)"),
        ('{"key": "a", "key": "b"}', "it is not a JSON object that can be read (duplicate_name)"),
        ('{"a":' * 70 + "1" + "}" * 70, "it is not a JSON object that can be read (depth)"),
        ("[2]", "it is not a JSON object"),
    ],
)
def test_what_is_no_record(text: str, sentence: str) -> None:
    with pytest.raises(ImportRecordError) as refusal:
        read_record(ImportEntry(1, None, text), LIMITS)
    assert str(refusal.value) == sentence


def test_a_record_stands_under_its_own_key() -> None:
    with pytest.raises(ImportRecordError, match="key differs from the member name of the record"):
        record("other")
