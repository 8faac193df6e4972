"""Metadata of a gRPC call: the headers that a client sends, and the trailers with the status that end the call."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from hpack import NeverIndexedHeaderTuple

from semel.kernel.errors import Grpc
from semel.kernel.header_fields import HeaderFields

GrpcHeader = tuple[bytes, bytes]

CANCELLED, UNKNOWN = 1, 2
"""Of calls whose client has gone, and of requests that are not gRPC: these numbers are counted, not sent."""
MAX_MESSAGE_CHARACTERS = 1_024
"""The message of a status travels in a header, and may quote what the caller sent."""
SHORTEST_NANOS = 100_000_000
"""A call whose deadline leaves less time is rejected at once."""
LONGEST_SECONDS = 366 * 86_400.0
IDENTITY, GZIP = b"identity", b"gzip"
ACCEPTED = b"identity,gzip"

_PLAIN = "".join(map(chr, (*range(0x20, 0x25), *range(0x26, 0x7F))))
"""What stands as it is in a grpc-message: printable ASCII but the percent sign."""
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_NANOS = {b"H": 3_600 * 10**9, b"M": 60 * 10**9, b"S": 10**9, b"m": 10**6, b"u": 1_000, b"n": 1}
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_NO_TRACE = b"0" * 32
_CONTENT_TYPES = (b"application/grpc", b"application/grpc+proto")


class GrpcError(Exception):
    """The transport rejects a call. The service says which status and details the client gets for it."""

    def __init__(
        self,
        kind: Grpc,
        message: str,
        context: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.context = context or {}
        self.retry_after_ms = retry_after_ms


class GrpcStatus(NamedTuple):
    """How a call ends: the number of the status, and the trailers that carry it."""

    number: int
    trailers: tuple[GrpcHeader, ...]


OK = GrpcStatus(0, ((b"grpc-status", b"0"),))


def error_status(kind: Grpc, message: str, details: bytes, retry_after_ms: int | None = None) -> GrpcStatus:
    """The status of an error; `details` is a serialized message for machines."""
    trailers: list[GrpcHeader] = [
        (b"grpc-status", str(kind.value).encode()),
        unindexed(b"grpc-message", quote(message[:MAX_MESSAGE_CHARACTERS], safe=_PLAIN).encode()),
        unindexed(b"grpc-status-details-bin", b64encode(details).rstrip(b"=")),
    ]
    if retry_after_ms is not None:
        trailers.append(unindexed(b"retry-after-ms", str(retry_after_ms).encode()))
    return GrpcStatus(kind.value, tuple(trailers))


def unindexed(name: bytes, value: bytes) -> GrpcHeader:
    """A header whose value does not come again, so that it pushes none that does out of the peer's table."""
    return NeverIndexedHeaderTuple(name, value)


def invalid_message(message: str, field: str = "") -> GrpcError:
    """The error of a message that has no valid form or is too large."""
    return GrpcError(Grpc.INVALID_ARGUMENT, message, {"field": field} if field else {})


# ---- The headers of a request ----


def http_refusal(fields: HeaderFields) -> bytes | None:
    """The HTTP status for a request that is not gRPC; None for one that is."""
    if fields.get(b":method") != b"POST":
        return b"405"
    kind = (fields.get(b"content-type") or b"").partition(b";")[0].strip().lower()
    return None if kind in _CONTENT_TYPES else b"415"


def check_encoding(fields: HeaderFields) -> None:
    """Reject a compression that this server does not know."""
    encoding = fields.get(b"grpc-encoding") or IDENTITY
    if encoding not in (IDENTITY, GZIP):
        raise GrpcError(Grpc.UNIMPLEMENTED, "Messages may be compressed with gzip, or not at all.")


def seconds_left(fields: HeaderFields) -> float | None:
    """The deadline of a call in seconds from now; None without one. A deadline that is too short is rejected."""
    value = fields.get(b"grpc-timeout")
    if value is None:
        return None
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise invalid_message("grpc-timeout must be up to eight digits and a unit.", "grpc-timeout")
    left = int(found[1]) * _NANOS[found[2]]
    if left < SHORTEST_NANOS:
        raise GrpcError(Grpc.DEADLINE_EXCEEDED, "The deadline leaves less than 100 ms; nothing was begun.")
    return min(left / 10**9, LONGEST_SECONDS)


def trace_id(fields: HeaderFields) -> bytes | None:
    """The trace that a call belongs to; None when it names none."""
    found = _TRACE.fullmatch(fields.get(b"traceparent") or b"")
    return None if found is None or found[1] == _NO_TRACE else found[1]


def no_method(path: bytes) -> GrpcError:
    """The error of a path without a method."""
    name = path.decode("ascii", "replace")
    return GrpcError(Grpc.UNIMPLEMENTED, f"There is no method {name} here.", {"method": name})
