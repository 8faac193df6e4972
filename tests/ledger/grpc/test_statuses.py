"""How refusals look in trailers."""

from __future__ import annotations

from base64 import b64decode
from urllib.parse import unquote

import pytest

from semel.kernel.errors import REGISTRY, Refusal
from semel.server.grpc.metadata import MAX_MESSAGE_CHARACTERS, OK, GrpcStatus
from semel.surfaces.ledger.grpc.answers import refusal_status
from semel.surfaces.ledger.proto import ledger_pb2 as pb

CODES = sorted(code.removeprefix("ledger:") for code in REGISTRY if code.startswith("ledger:"))


def details(status: GrpcStatus) -> pb.ErrorDetails:
    value = dict(status.trailers)[b"grpc-status-details-bin"]
    return pb.ErrorDetails.FromString(b64decode(value + b"=" * (-len(value) % 4)))


@pytest.mark.parametrize("code", CODES)
def test_every_refusal_has_a_status_with_details(code: str) -> None:
    kind = REGISTRY[f"ledger:{code}"]
    status = refusal_status(Refusal(f"ledger:{code}", "Why.", {"field": "key"}))
    trailers = dict(status.trailers)
    assert (status.number, trailers[b"grpc-status"]) == (kind.grpc.value, str(kind.grpc.value).encode())
    assert trailers[b"grpc-message"] == b"Why."
    found = details(status)
    assert found.context == {"field": "key"}
    assert found.is_retryable is (kind.retry.value != "never")
    assert found.HasField("suggested_action") is found.is_retryable


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("organization_not_found", "3100"),
        ("vault_not_found", "3101"),
        ("invalid_argument", "3203"),
        ("internal", "3204"),
        ("height_unavailable", "HEIGHT_UNAVAILABLE"),
        ("unavailable", "UNAVAILABLE"),
    ],
)
def test_the_numbers(code: str, number: str) -> None:
    assert details(refusal_status(Refusal(f"ledger:{code}", ""))).error_code == number


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (Refusal("ledger:resource_exhausted", "", {}, retry_after_ms=250), 250),
        (Refusal("ledger:resource_exhausted", ""), 1_000),
        (Refusal("ledger:unavailable", "", {}, retry_after_ms=2**40), 2**31 - 1),
        (Refusal("ledger:unavailable", ""), None),
        (Refusal("ledger:not_found", ""), None),
    ],
    ids=["told", "usual", "large", "unknown", "never"],
)
def test_when_to_come_back(refusal: Refusal, expected: int | None) -> None:
    status = refusal_status(refusal)
    told = dict(status.trailers).get(b"retry-after-ms")
    found = details(status)
    assert (found.retry_after_ms if found.HasField("retry_after_ms") else None) == expected
    assert told == (None if expected is None else str(expected).encode())


def test_messages_are_ascii_and_bounded() -> None:
    message = "100 % Müller\n\0" + "x" * 10_000
    told = dict(refusal_status(Refusal("ledger:not_found", message)).trailers)[b"grpc-message"]
    assert all(0x20 <= byte < 0x7F for byte in told)
    assert unquote(told.decode()) == message[:MAX_MESSAGE_CHARACTERS]


def test_success_is_only_a_number() -> None:
    assert OK.trailers == ((b"grpc-status", b"0"),)
