"""What is read from the head of a call."""

from __future__ import annotations

import pytest

from semel.kernel.errors import Grpc
from semel.kernel.header_fields import HeaderFields
from semel.server.grpc.metadata import (
    LONGEST_SECONDS,
    GrpcError,
    check_encoding,
    http_refusal,
    no_method,
    seconds_left,
    trace_id,
)


def with_field(name: str, value: str | None) -> HeaderFields:
    return HeaderFields([] if value is None else [(name.encode(), value.encode())])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("1H", 3_600.0),
        ("2M", 120.0),
        ("3S", 3.0),
        ("100m", 0.1),
        ("100000u", 0.1),
        ("99999999H", LONGEST_SECONDS),
    ],
)
def test_a_deadline(value: str | None, seconds: float | None) -> None:
    left = seconds_left(with_field("grpc-timeout", value))
    assert left == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("value", ["99m", "0S", "99999u", "99999999n", "0n"])
def test_too_little_time_is_refused_before_anything_is_done(value: str) -> None:
    with pytest.raises(GrpcError) as caught:
        seconds_left(with_field("grpc-timeout", value))
    assert caught.value.kind is Grpc.DEADLINE_EXCEEDED


@pytest.mark.parametrize("value", ["", "1", "S", "1s", "123456789S", "-1S", "1.5S", " 1S", "1SS"])
def test_what_is_no_deadline_is_refused(value: str) -> None:
    with pytest.raises(GrpcError) as caught:
        seconds_left(with_field("grpc-timeout", value))
    assert caught.value.kind is Grpc.INVALID_ARGUMENT


@pytest.mark.parametrize("value", [None, "identity", "gzip"])
def test_compressions(value: str | None) -> None:
    check_encoding(with_field("grpc-encoding", value))


@pytest.mark.parametrize("value", ["deflate", "snappy", "GZIP"])
def test_other_compressions_are_not_implemented(value: str) -> None:
    with pytest.raises(GrpcError) as caught:
        check_encoding(with_field("grpc-encoding", value))
    assert caught.value.kind is Grpc.UNIMPLEMENTED


TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE.encode()),
        (f"cc-{TRACE}-b7ad6b7169203331-01-what-the-future-brings", TRACE.encode()),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", None),
        (f"00-{TRACE[1:]}-b7ad6b7169203331-01", None),
        ("x", None),
    ],
    ids=["none", "given", "later-version", "zero", "capitals", "short", "junk"],
)
def test_a_trace_is_gone_on_with(value: str | None, found: bytes | None) -> None:
    assert trace_id(with_field("traceparent", value)) == found


@pytest.mark.parametrize(
    ("method", "kind", "status"),
    [
        ("POST", "application/grpc", None),
        ("POST", "application/grpc+proto", None),
        ("POST", "application/grpc;charset=utf-8", None),
        ("POST", "application/grpc+json", b"415"),
        ("POST", "application/json", b"415"),
        ("POST", "", b"415"),
        ("GET", "application/grpc", b"405"),
    ],
)
def test_what_is_not_grpc(method: str, kind: str, status: bytes | None) -> None:
    fields = HeaderFields([(b":method", method.encode()), (b"content-type", kind.encode())])
    assert http_refusal(fields) == status


def test_a_path_that_is_no_text_can_be_told() -> None:
    assert no_method(b"/\xff\xfe").kind is Grpc.UNIMPLEMENTED
