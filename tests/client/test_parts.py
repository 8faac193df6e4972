"""The parts that are values in, values out: addresses, pauses, checksums, reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from semel.client import Defer, IntegrityError, Permanent, RetryLater
from semel.client.access import DEFAULT_URL, find_access, find_token
from semel.client.errors import (
    AccessError,
    BusyError,
    ConfigurationError,
    ConflictError,
    InvalidRequestError,
    KeyCollisionError,
    LeaseLostError,
    ProofRefusedError,
    RefusedError,
    refusal,
)
from semel.client.jobs.integrity import canonical_bytes, check, proof
from semel.client.jobs.submission import BATCH_BYTES, BATCH_JOBS, batches, draft
from semel.client.jobs.values import JobRequest
from semel.client.json_answer import facts_of
from semel.client.retry import ENDLESS, MOST_ASKED_SECONDS, Patience, pause_seconds
from semel.client.worker.reports import DeferredReport, FailedReport, report_of


def test_what_is_not_given_comes_from_the_environment() -> None:
    environ = {"SEMEL_URL": "http://a:1/", "SEMEL_TOKEN": " t\n", "SEMEL_JOBS_RESULT_HMAC_KEY": "k"}
    access = find_access(environ)
    assert (access.url, access.token, access.hmac_key) == ("http://a:1", "t", b"k")
    given = find_access(environ, "https://b/base", "u", b"x")
    assert (given.url, given.token, given.hmac_key) == ("https://b/base", "u", b"x")
    assert find_access({}).url == DEFAULT_URL
    assert "secret" not in repr(find_access({}, None, "secret", "secret"))


BROKEN_URLS = ["http://[::1", "http://h/?", "http://h/#", "http://h:x"]


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://", "http://u:p@a", "http://a?x=1", "http://a/#x", "http://a\n", *BROKEN_URLS]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        find_access({}, url)


@pytest.mark.parametrize("token", ["two words", "line\nend", "schlüssel"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find_access({}, None, token)
    assert token not in str(refused.value)


def test_a_token_is_found_in_its_file_or_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" t1\n")
    assert find_token({"SEMEL_TOKEN": "t2"}, file) == "t1"
    assert find_token({"SEMEL_TOKEN": " t2 "}, None) == "t2"
    assert find_token({}, None) is None
    for content, sentence in ((b"", "is empty"), (b"two words", "must hold one token"), (b"\xff", "it is not text")):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=sentence) as refused:
            find_token({}, file)
        assert "two words" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        find_token({}, tmp_path / "none")


def test_pauses_grow_to_a_bound_and_keep_to_what_the_server_asks() -> None:
    shortest = [pause_seconds(tried, 0.0, 0.0) for tried in range(1, 9)]
    assert shortest == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    assert all(pause_seconds(tried, 0.0, 1.0) == 2 * pause for tried, pause in enumerate(shortest, start=1))
    assert pause_seconds(1, 7.0, 0.5) >= 7.0
    assert pause_seconds(10**9, 10.0**9, 1.0) <= 1.25 * MOST_ASKED_SECONDS


def test_patience_ends_by_tries_or_by_time() -> None:
    patience = Patience(tries=3, seconds=10.0)
    assert not patience.is_over(2, 5.0, 1.0)
    assert patience.is_over(3, 0.0, 0.0)
    assert patience.is_over(1, 9.5, 1.0)
    assert not ENDLESS.is_over(10**9, 10.0**9, 1.0)


VECTORS = [
    (
        True,
        {"note": "hello", "value": 42},
        "e1c385f76353565a1e3f961ca50ec256b590b88c0e7e5c6af0b9299e29f13fb9",
        "4fd5c52df26d4c184bbc54f9f7138bb32f0c1e568f8b509707a5f4617a244d16",
    ),
    (
        False,
        {"code": "boom", "message": "no"},
        "d3aef923358f2e3167b463cc9ad0c32c67d540f65b30205ca30616b57b10949e",
        "796c25c52ad4bdfb44b7913ee43dbf7756d1f596e97fb380b167c561e4397323",
    ),
]


@pytest.mark.parametrize(("ok", "value", "digest", "signature"), VECTORS)
def test_a_result_is_hashed_and_signed_over_its_canonical_bytes(
    ok: bool, value: dict[str, Any], digest: str, signature: str
) -> None:
    text = canonical_bytes(value)
    assert proof("job_1", ok, text, None) == {"mode": "sha256", "sha256": digest}
    signed = proof("job_1", ok, text, b"integrity-key")
    assert signed == {"mode": "hmac", "sha256": digest, "sig": signature}
    assert check("job_1", ok, value, signed, b"integrity-key") == (digest, True)
    assert check("job_1", ok, value, signed, None) == (digest, False)
    with pytest.raises(IntegrityError):
        check("job_1", ok, value, {"sha256": digest}, b"integrity-key")
    wrong: list[tuple[str, Any, Mapping[str, Any], bytes | None]] = [
        ("job_2", value, signed, None),
        ("job_1", {**value, "more": 1}, signed, None),
        ("job_1", value, {}, None),
        ("job_1", value, {"sha256": 7}, None),
        ("job_1", value, signed, b"another-key"),
        ("job_1", value, signed | {"sig": "ü"}, b"integrity-key"),
    ]
    for job_id, read, given, key in wrong:
        with pytest.raises(IntegrityError):
            check(job_id, ok, read, given, key)


REFUSALS = [
    (400, "invalid_request", InvalidRequestError, False, False),
    (400, "integrity_missing", ProofRefusedError, False, False),
    (401, "unauthorized", AccessError, False, False),
    (403, "forbidden", AccessError, False, False),
    (409, "IDEMPOTENCY_KEY_COLLISION", KeyCollisionError, False, False),
    (409, "lease_lost", LeaseLostError, False, False),
    (409, "job_active", ConflictError, False, False),
    (422, "result_integrity_fail", ProofRefusedError, False, False),
    (429, "backpressure", BusyError, True, False),
    (500, "internal_error", RefusedError, True, True),
    (500, "result_integrity_fail", ProofRefusedError, False, False),
    (502, "", RefusedError, True, True),
    (503, "overloaded", BusyError, True, False),
    (503, "not_durable", BusyError, True, True),
]


@pytest.mark.parametrize(("status", "code", "kind", "may_pass", "is_unsettled"), REFUSALS)
def test_refusals_by_code_and_status(
    status: int, code: str, kind: type[RefusedError], may_pass: bool, is_unsettled: bool
) -> None:
    error = refusal(status, {"error": code, "message": "Words."} if code else {}, 3.0)
    assert type(error) is kind
    assert (error.status, error.code, error.retry_after) == (status, code, 3.0)
    assert (error.may_pass, error.is_unsettled) == (may_pass, is_unsettled)


def test_a_refusal_knows_the_field_and_the_finer_pause() -> None:
    error = refusal(400, {"error": "invalid_request", "message": "m", "field": "kind", "retry_after_ms": 250}, 1.0)
    assert isinstance(error, InvalidRequestError)
    assert (error.field, error.retry_after) == ("kind", 0.25)


def test_batches_are_bounded_by_count_and_bytes() -> None:
    small = [JobRequest("k", {"n": number}) for number in range(250)]
    assert [len(piece) for piece in batches(map(draft, small))] == [BATCH_JOBS, BATCH_JOBS, 50]
    large = [JobRequest("k", {"text": "x" * 900_000}) for _ in range(5)]
    pieces = list(batches(map(draft, large)))
    assert [len(piece) for piece in pieces] == [2, 2, 1]
    assert all(sum(len(one.body) for one in piece) <= BATCH_BYTES for piece in pieces)
    assert len({one.key for piece in pieces for one in piece}) == 5
    assert list(batches([])) == []


def test_answers_may_be_deeper_than_what_was_sent() -> None:
    deep = b"[" * 80 + b"12345678901234567890123" + b"]" * 80
    value: Any = facts_of(b'{"jobs":%s}' % deep)["jobs"]
    for _ in range(80):
        [value] = value
    assert value == 12345678901234567890123
    for broken in (b"[]", b"{", b"[" * 100_000):
        with pytest.raises(ValueError, match=r"object|JSON|deep|Expecting"):
            facts_of(broken)


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class CardDeclined(Permanent):
    pass


def test_exceptions_become_bounded_reports() -> None:
    assert report_of(ValueError("no")) == FailedReport({"code": "ValueError", "message": "no"})
    assert report_of(BrokenError()) == FailedReport({"code": "BrokenError", "message": ""})
    assert report_of(CardDeclined("x", details={"a": 1})) == FailedReport(
        {"code": "CardDeclined", "message": "x", "details": {"a": 1}}, retryable=False
    )
    assert report_of(Permanent("a\nb", code="c\nd")) == FailedReport(
        {"code": "c?d", "message": "a\nb"}, retryable=False
    )
    assert report_of(RetryLater(10**9, code="busy")) == FailedReport({"code": "busy", "message": ""}, True, 86_400.0)
    assert report_of(Defer(-1.0, "r" * 999)) == DeferredReport(0.0, "r" * 256)
    long = report_of(Permanent("\ud800" + "é" * 9_999, code="c" * 999, details={"a": {1, 2}}))
    assert isinstance(long, FailedReport)
    assert long.error == {"code": "c" * 128, "message": "?" + "é" * 1_023}
    large = report_of(Permanent("m", details={"text": "x" * 10_000}))
    assert isinstance(large, FailedReport)
    assert "details" not in large.error
