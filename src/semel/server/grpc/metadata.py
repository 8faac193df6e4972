"""Metadata of a gRPC call: the headers that a client sends, and the trailers with the final status."""

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
"""The status of a call whose client has disconnected, and of a request that is not gRPC: counted, but not sent."""
MAX_MESSAGE_CHARACTERS = 1_024
"""Limit on the message of a status, because it is sent in a header and may quote the caller's input."""
SHORTEST_NANOS = 100_000_000
"""A call whose deadline leaves less time than this, in nanoseconds, is rejected at once."""
LONGEST_SECONDS = 366 * 86_400.0
IDENTITY, GZIP = b"identity", b"gzip"
NAMESPACE = b"semel-namespace"
"""The metadata entry with the namespace of a call; without it the call is for the default one."""
ACCEPTED = b"identity,gzip"

_PLAIN = "".join(map(chr, (*range(0x20, 0x25), *range(0x26, 0x7F))))
"""Characters that are not escaped in grpc-message: printable ASCII without the percent sign."""
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_NANOS = {b"H": 3_600 * 10**9, b"M": 60 * 10**9, b"S": 10**9, b"m": 10**6, b"u": 1_000, b"n": 1}
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_NO_TRACE = b"0" * 32
_CONTENT_TYPES = (b"application/grpc", b"application/grpc+proto")


class GrpcError(Exception):
    """The transport rejects a call. The service chooses the status and the details for the client."""

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
    """The end of a call: the number of the status, and its trailers."""

    number: int
    trailers: tuple[GrpcHeader, ...]


OK = GrpcStatus(0, ((b"grpc-status", b"0"),))


def error_status(kind: Grpc, message: str, details: bytes, retry_after_ms: int | None = None) -> GrpcStatus:
    """The status of an error; `details` is a serialized message for programs."""
    trailers: list[GrpcHeader] = [
        (b"grpc-status", str(kind.value).encode()),
        unindexed(b"grpc-message", quote(message[:MAX_MESSAGE_CHARACTERS], safe=_PLAIN).encode()),
        unindexed(b"grpc-status-details-bin", b64encode(details).rstrip(b"=")),
    ]
    if retry_after_ms is not None:
        trailers.append(unindexed(b"retry-after-ms", str(retry_after_ms).encode()))
    return GrpcStatus(kind.value, tuple(trailers))


def unindexed(name: bytes, value: bytes) -> GrpcHeader:
    """A header that is not added to the peer's HPACK table, because its value is not repeated."""
    return NeverIndexedHeaderTuple(name, value)


def invalid_message(message: str, field: str = "") -> GrpcError:
    """The error of a message that is malformed or too large."""
    return GrpcError(Grpc.INVALID_ARGUMENT, message, {"field": field} if field else {})


# ---- The headers of a request ----


def http_refusal(fields: HeaderFields) -> bytes | None:
    """The HTTP status for a request that is not gRPC; None for gRPC."""
    if fields.get(b":method") != b"POST":
        return b"405"
    kind = (fields.get(b"content-type") or b"").partition(b";")[0].strip().lower()
    return None if kind in _CONTENT_TYPES else b"415"


def check_encoding(fields: HeaderFields) -> None:
    """Reject a compression that this server does not support."""
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
        raise invalid_message("grpc-timeout must be one to eight digits and a unit.", "grpc-timeout")
    left = int(found[1]) * _NANOS[found[2]]
    if left < SHORTEST_NANOS:
        raise GrpcError(Grpc.DEADLINE_EXCEEDED, "The deadline leaves less than 100 ms; nothing was started.")
    return min(left / 10**9, LONGEST_SECONDS)


def check_namespace(fields: HeaderFields) -> None:
    """Reject a call that names a namespace, but for the default one: no other is known by the name."""
    name = fields.get(NAMESPACE) or b"default"
    if name != b"default":
        told = name[:64].decode("ascii", "replace")
        raise GrpcError(Grpc.NOT_FOUND, f"There is no namespace {told} here.", {"namespace": told})


def trace_id(fields: HeaderFields) -> bytes | None:
    """The trace id of a call; None if it has none."""
    found = _TRACE.fullmatch(fields.get(b"traceparent") or b"")
    return None if found is None or found[1] == _NO_TRACE else found[1]


def no_method(path: bytes) -> GrpcError:
    """The error of a path without a method."""
    name = path.decode("ascii", "replace")
    return GrpcError(Grpc.UNIMPLEMENTED, f"There is no method {name} here.", {"method": name})
