"""The registry of all errors that a caller can get, and the refusal that carries one of them.

A code is part of the interface: its meaning never changes. Each code has an HTTP status, a WebSocket close code, a gRPC
status, and machine-readable advice about retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple


class Retry(Enum):
    """Whether the caller should send the same request again."""

    SAME_KEY = "same_key"
    """Send the request again unchanged, with the same key: its outcome is unknown."""
    LATER = "later"
    """Nothing was stored; send the request again later."""
    NEVER = "never"
    """The same request gives the same answer again."""


class Grpc(Enum):
    """The gRPC statuses in use."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class ErrorKind(NamedTuple):
    """One row of the registry."""

    code: str
    status: int
    title: str
    grpc: Grpc
    retry: Retry
    websocket: int

    @property
    def type(self) -> str:
        """The relative reference that names this kind in a problem document."""
        surface, _, name = self.code.rpartition(":")
        if not surface and name.islower():
            surface = "events"
        return "/errors/" + "-".join(part for part in (surface, name.lower().replace("_", "-")) if part)

    @property
    def name(self) -> str:
        """The code as it is spelled on its own surface."""
        return self.code.rpartition(":")[2]


_TABLE: tuple[tuple[str, int, str, Grpc, Retry, int], ...] = (
    ("IDEMPOTENCY_MISMATCH", 409, "Idempotency Key Mismatch", Grpc.ABORTED, Retry.NEVER, 1008),
    ("INVALID_IDEMPOTENCY_KEY", 400, "Invalid Idempotency Key", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("STREAM_NOT_FOUND", 404, "Stream Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("STREAM_GONE", 410, "Stream Gone", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("STREAM_CLOSED", 409, "Stream Closed", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("STREAM_EXISTS", 409, "Stream Exists With Other Configuration", Grpc.ALREADY_EXISTS, Retry.NEVER, 1008),
    ("PRECONDITION_FAILED", 412, "Precondition Failed", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("UNSUPPORTED_ENCODING", 415, "Unsupported Content Encoding", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("CONTENT_TYPE_MISMATCH", 409, "Content Type Mismatch", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("SEQUENCE_CONFLICT", 409, "Sequence Conflict", Grpc.ABORTED, Retry.NEVER, 1008),
    ("PRODUCER_GAP", 409, "Producer Sequence Gap", Grpc.ABORTED, Retry.NEVER, 1008),
    ("PRODUCER_FENCED", 403, "Producer Epoch Is Stale", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("INVALID_PRODUCER", 400, "Invalid Producer Headers", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("INVALID_OFFSET", 400, "Invalid Offset", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("INVALID_EXPIRY", 400, "Invalid Expiry", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("INVALID_FORK", 400, "Invalid Fork", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("INVALID_RETENTION", 400, "Invalid Retention", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("FORK_SOURCE_NOT_FOUND", 404, "Fork Source Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("FORK_SOURCE_GONE", 409, "Fork Source Gone", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("INVALID_JSON", 400, "Invalid JSON", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("EMPTY_BODY", 400, "Empty Body", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("MISSING_CONTENT_TYPE", 400, "Missing Content Type", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("INVALID_REQUEST", 400, "Invalid Request", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    # The codes of subscriptions of streams.
    ("WEBHOOK_URL_REJECTED", 400, "Webhook URL Rejected", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("TOKEN_INVALID", 401, "Token Invalid", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("TOKEN_EXPIRED", 401, "Token Expired", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("SUBSCRIPTION_NOT_FOUND", 404, "Subscription Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    (
        "SUBSCRIPTION_ALREADY_EXISTS",
        409,
        "Subscription Exists With Other Configuration",
        Grpc.ALREADY_EXISTS,
        Retry.NEVER,
        1008,
    ),
    ("ALREADY_CLAIMED", 409, "Already Claimed", Grpc.ABORTED, Retry.LATER, 1008),
    ("NO_PENDING_WORK", 409, "No Pending Work", Grpc.FAILED_PRECONDITION, Retry.LATER, 1008),
    ("FENCED", 409, "Wake Is Over", Grpc.ABORTED, Retry.NEVER, 1008),
    ("SUBSCRIPTION_LIMIT", 429, "Too Many Subscriptions", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("UNAUTHORIZED", 401, "Unauthorized", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("FORBIDDEN", 403, "Forbidden", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("FORBIDDEN_ORIGIN", 403, "Origin Not Allowed", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    # The codes of stored tokens.
    ("TOKEN_NOT_FOUND", 404, "Token Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("TOKEN_EXISTS", 409, "Token Exists", Grpc.ALREADY_EXISTS, Retry.NEVER, 1008),
    ("TOKEN_ENDED", 409, "Token Has Ended", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("TOKEN_ROTATED", 409, "Token Was Rotated", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("TOKEN_LIMIT", 429, "Too Many Tokens", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("NOT_FOUND", 404, "Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("METHOD_NOT_ALLOWED", 405, "Method Not Allowed", Grpc.UNIMPLEMENTED, Retry.NEVER, 1008),
    ("WRONG_PLANE", 410, "Wrong Listener", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("REQUEST_TIMEOUT", 408, "Request Timeout", Grpc.UNAVAILABLE, Retry.SAME_KEY, 1008),
    ("PAYLOAD_TOO_LARGE", 413, "Payload Too Large", Grpc.OUT_OF_RANGE, Retry.NEVER, 1009),
    ("RATE_LIMITED", 429, "Rate Limited", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("QUOTA_EXCEEDED", 429, "Quota Exceeded", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("HEADERS_TOO_LARGE", 431, "Headers Too Large", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1009),
    ("INTERNAL_ERROR", 500, "Internal Error", Grpc.INTERNAL, Retry.SAME_KEY, 1011),
    ("OVERLOADED", 503, "Overloaded", Grpc.UNAVAILABLE, Retry.LATER, 1013),
    ("UNAVAILABLE", 503, "Store Unavailable", Grpc.UNAVAILABLE, Retry.LATER, 1013),
    ("NOT_STORED", 503, "Not Stored", Grpc.UNAVAILABLE, Retry.LATER, 1011),
    ("OUTCOME_UNKNOWN", 503, "Outcome Unknown", Grpc.UNAVAILABLE, Retry.SAME_KEY, 1011),
    # The codes of events, which are lower case on the wire.
    ("bad_request", 400, "Bad Request", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("validation_failed", 422, "Validation Failed", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("watermark_mismatch", 412, "Watermark Mismatch", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("payload_too_large", 413, "Event Too Large", Grpc.OUT_OF_RANGE, Retry.NEVER, 1009),
    ("forbidden", 403, "Partition Not Allowed", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("auth_failed", 401, "Authentication Failed", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("not_found", 404, "Event Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("pruned", 410, "Event Pruned", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("rate_limited", 429, "Too Many Events", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("quota_exceeded", 429, "Quota Exceeded", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("server_error", 500, "Server Error", Grpc.INTERNAL, Retry.SAME_KEY, 1011),
    ("protocol_version_unsupported", 400, "Protocol Version Unsupported", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("reset", 410, "Cursor Of A Lost Epoch", Grpc.OUT_OF_RANGE, Retry.NEVER, 1008),
    ("profile_unsupported", 400, "Profile Unsupported", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    # The codes of jobs; on the wire they have no surface prefix.
    ("jobs:invalid_request", 400, "Invalid Request", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("jobs:idempotency_key_mismatch", 400, "Two Idempotency Keys", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("jobs:integrity_missing", 400, "Integrity Missing", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("jobs:unauthorized", 401, "Unauthorized", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("jobs:forbidden", 403, "Forbidden", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("jobs:forbidden_origin", 403, "Origin Not Allowed", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("jobs:not_found", 404, "Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("jobs:method_not_allowed", 405, "Method Not Allowed", Grpc.UNIMPLEMENTED, Retry.NEVER, 1008),
    ("jobs:IDEMPOTENCY_KEY_COLLISION", 409, "Idempotency Key Collision", Grpc.ABORTED, Retry.NEVER, 1008),
    ("jobs:lease_lost", 409, "Lease Lost", Grpc.ABORTED, Retry.NEVER, 1008),
    ("jobs:lease_required", 409, "Lease Required", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("jobs:result_conflict", 409, "Result Conflict", Grpc.ABORTED, Retry.NEVER, 1008),
    ("jobs:group_closed", 409, "Group Closed", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("jobs:job_active", 409, "Job Active", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("jobs:wrong_plane", 410, "Wrong Listener", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("jobs:too_large", 413, "Too Large", Grpc.OUT_OF_RANGE, Retry.NEVER, 1009),
    ("jobs:unsupported_media_type", 415, "Unsupported Media Type", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("jobs:result_integrity_fail", 422, "Result Integrity Failure", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("jobs:quota_exceeded", 429, "Quota Exceeded", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("jobs:backpressure", 429, "Queue Full", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("jobs:idempotency_store_full", 429, "Key Store Full", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("jobs:internal_error", 500, "Internal Error", Grpc.INTERNAL, Retry.SAME_KEY, 1011),
    ("jobs:overloaded", 503, "Overloaded", Grpc.UNAVAILABLE, Retry.LATER, 1013),
    ("jobs:not_stored", 503, "Not Stored", Grpc.UNAVAILABLE, Retry.LATER, 1011),
    ("jobs:not_durable", 503, "Outcome Unknown", Grpc.UNAVAILABLE, Retry.SAME_KEY, 1011),
    ("jobs:shutting_down", 503, "Shutting Down", Grpc.UNAVAILABLE, Retry.SAME_KEY, 1011),
    # The codes of the ledger; on the wire a refusal has a gRPC status and a number.
    ("ledger:invalid_argument", 400, "Invalid Argument", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("ledger:unauthenticated", 401, "Unauthenticated", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("ledger:permission_denied", 403, "Permission Denied", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("ledger:forbidden_origin", 403, "Origin Not Allowed", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("ledger:not_found", 404, "Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("ledger:organization_not_found", 404, "Organization Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("ledger:vault_not_found", 404, "Vault Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("ledger:method_not_allowed", 405, "Method Not Allowed", Grpc.UNIMPLEMENTED, Retry.NEVER, 1008),
    ("ledger:failed_precondition", 409, "Failed Precondition", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("ledger:height_unavailable", 409, "Height Unavailable", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("ledger:resource_exhausted", 429, "Resource Exhausted", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("ledger:internal", 500, "Internal Error", Grpc.INTERNAL, Retry.SAME_KEY, 1011),
    ("ledger:data_loss", 500, "Data Loss", Grpc.DATA_LOSS, Retry.NEVER, 1011),
    ("ledger:unimplemented", 501, "Not Implemented", Grpc.UNIMPLEMENTED, Retry.NEVER, 1008),
    ("ledger:unavailable", 503, "Unavailable", Grpc.UNAVAILABLE, Retry.SAME_KEY, 1013),
    ("ledger:deadline_exceeded", 504, "Deadline Exceeded", Grpc.DEADLINE_EXCEEDED, Retry.SAME_KEY, 1011),
    # The codes of deltas; on the wire they have no surface prefix, and some also occur with other statuses.
    ("deltas:VALIDATION_ERROR", 400, "Invalid Request", Grpc.INVALID_ARGUMENT, Retry.NEVER, 1008),
    ("deltas:SCHEMA_ERROR", 422, "Schema Violated", Grpc.FAILED_PRECONDITION, Retry.NEVER, 1008),
    ("deltas:AUTH_ERROR", 401, "Not Authorized", Grpc.UNAUTHENTICATED, Retry.NEVER, 1008),
    ("deltas:FORBIDDEN", 403, "Forbidden", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("deltas:FORBIDDEN_ORIGIN", 403, "Origin Not Allowed", Grpc.PERMISSION_DENIED, Retry.NEVER, 1008),
    ("deltas:NOT_FOUND", 404, "Not Found", Grpc.NOT_FOUND, Retry.NEVER, 1008),
    ("deltas:CLOCK_DRIFT", 409, "Clock Too Far Ahead", Grpc.FAILED_PRECONDITION, Retry.LATER, 1008),
    ("deltas:CURSOR_EXPIRED", 410, "Cursor Expired", Grpc.OUT_OF_RANGE, Retry.NEVER, 1008),
    ("deltas:RATE_LIMITED", 429, "Rate Limited", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("deltas:QUOTA_EXCEEDED", 429, "Quota Exceeded", Grpc.RESOURCE_EXHAUSTED, Retry.LATER, 1013),
    ("deltas:INTERNAL_ERROR", 500, "Internal Error", Grpc.INTERNAL, Retry.SAME_KEY, 1011),
    ("deltas:BACKPRESSURE_ERROR", 503, "Too Many Writes Waiting", Grpc.UNAVAILABLE, Retry.LATER, 1013),
    ("deltas:OUTCOME_UNKNOWN", 503, "Outcome Unknown", Grpc.UNAVAILABLE, Retry.SAME_KEY, 1011),
)

REGISTRY: dict[str, ErrorKind] = {row[0]: ErrorKind(*row) for row in _TABLE}


class Refusal(NamedTuple):
    """The value that describes a request that is not carried out. Each surface renders it once for each wire."""

    code: str
    """The code in the registry, with the prefix of its surface if it has one: `jobs:not_found`."""
    message: str
    """One sentence that a person can act on."""
    facts: Mapping[str, Any] = {}
    """Further members of the answer's body."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Further headers of the answer, over HTTP."""
    own_status: int | None = None
    """The HTTP status, if it differs from that of the registry."""
    retry_after_ms: int | None = None
    closes: bool = False
    """Whether this refusal closes a WebSocket."""

    @property
    def kind(self) -> ErrorKind:
        """The row of the registry."""
        return REGISTRY[self.code]

    @property
    def name(self) -> str:
        """The code as it is spelled on its own surface."""
        return self.kind.name

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.kind.status if self.own_status is None else self.own_status

    @property
    def is_denial(self) -> bool:
        """Whether a known caller lacks the right. A fenced producer also gets status 403, but is not a denial."""
        return self.status == 403 and self.code != "PRODUCER_FENCED"


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """Carries a refusal to the wire, which answers with it."""

    def __init__(
        self,
        code: str,
        message: str,
        facts: Mapping[str, Any] = {},
        *,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        own_status: int | None = None,
        retry_after_ms: int | None = None,
        closes: bool = False,
    ) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message, facts, headers, own_status, retry_after_ms, closes)

    @staticmethod
    def of(refusal: Refusal) -> Refused:
        """The exception for a refusal that a decision returned."""
        refused = Refused(refusal.code, refusal.message)
        refused.refusal = refusal
        return refused
