"""gRPC statuses: code, message, and details in the trailers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from hpack import NeverIndexedHeaderTuple

from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.wire.problems import error_code, kind_of
from semel.kernel.errors import Grpc, Retry
from semel.server.ledger.faults import RETRY_MS
from semel.server.ledger.proto import ledger_pb2 as pb

Header = tuple[bytes, bytes]

CANCELLED, UNKNOWN = 1, 2
"""Of cancelled calls, and of requests that were no call: these numbers are counted, not sent."""
MAX_MESSAGE_CHARACTERS = 1_024
"""Messages travel in a header, and may quote what the caller sent."""
_ADVICE = {
    Retry.SAME_KEY: "Send the same request again, with the same idempotency key and the same sequence.",
    Retry.LATER: "Wait for retry_after_ms, then send the same request again.",
}
_PLAIN = "".join(map(chr, (*range(0x20, 0x25), *range(0x26, 0x7F))))
"""Characters that a grpc-message carries unescaped: printable ASCII but the percent sign."""
_LARGEST_MS = 2**31 - 1


class Status(NamedTuple):
    """The final status of a call."""

    number: int
    trailers: tuple[Header, ...]


OK = Status(0, ((b"grpc-status", b"0"),))


def refused(refusal: Refusal) -> Status:
    """The status of a refusal."""
    kind = kind_of(refusal)
    wait_ms = refusal.retry_after_ms
    if wait_ms is None and kind.retry is Retry.LATER:
        wait_ms = RETRY_MS
    details = pb.ErrorDetails(
        error_code=error_code(refusal.code), is_retryable=kind.retry is not Retry.NEVER, context=refusal.context
    )
    if wait_ms is not None:
        details.retry_after_ms = min(wait_ms, _LARGEST_MS)
    if kind.retry in _ADVICE:
        details.suggested_action = _ADVICE[kind.retry]
    return _status(kind.grpc, refusal.message, details)


def precondition(message: str, number: int, context: Mapping[str, str]) -> Status:
    """A domain error as a status, because a client could take its usual form for a success."""
    details = pb.ErrorDetails(error_code=str(number), is_retryable=False, context=context)
    return _status(Grpc.FAILED_PRECONDITION, message, details)


def unindexed(name: bytes, value: bytes) -> Header:
    """A header that is not indexed (HPACK), so that it evicts no header that repeats."""
    return NeverIndexedHeaderTuple(name, value)


def _status(kind: Grpc, message: str, details: pb.ErrorDetails) -> Status:
    trailers: list[Header] = [
        (b"grpc-status", str(kind.value).encode()),
        unindexed(b"grpc-message", quote(message[:MAX_MESSAGE_CHARACTERS], safe=_PLAIN).encode()),
        unindexed(b"grpc-status-details-bin", b64encode(details.SerializeToString()).rstrip(b"=")),
    ]
    if details.HasField("retry_after_ms"):
        trailers.append(unindexed(b"retry-after-ms", str(details.retry_after_ms).encode()))
    return Status(kind.value, tuple(trailers))
