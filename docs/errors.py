"""The tables of all error codes: code, status, title and retry class from the registry, advice from here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from semel.kernel.errors import REGISTRY, ErrorKind

ORIGIN = "Call the server by an [allowed name](../operating/access.md), from an allowed web page."
BEARER = "Send a token that the server knows."
QUOTA = "Wait for `Retry-After`, then send the same again. The message names the [quota](../operating/running.md)."
METHOD = "Use a method that `Allow` names."
PORT = "Ask on the [other port](http.md#control-listener)."
FAULT = "Send the same again. Report the error id"
WAIT = "Wait for `Retry-After`, then send the same again"

HEADINGS: Mapping[str, str] = {
    "": "Streams and the server",
    "events": "Events",
    "jobs": "Jobs",
    "ledger": "Ledger",
    "deltas": "Deltas",
}

ADVICE: Mapping[str, str] = {
    "IDEMPOTENCY_MISMATCH": "Use a new key for a new append. For a retry send the first bytes.",
    "INVALID_IDEMPOTENCY_KEY": "Send one key of 1 to 256 printable ASCII characters.",
    "STREAM_NOT_FOUND": "Create it with PUT. It may have ended or been deleted.",
    "STREAM_GONE": (
        "Drop what you read behind `Stream-Next-Offset`, and continue from there: the content was lost in a "
        "[restore](../operating/backup.md), or retention removed it. Without that header the stream was deleted, "
        "and is kept for its forks."
    ),
    "STREAM_CLOSED": "Stop appending. The answer has the final offset.",
    "STREAM_EXISTS": "Ask for the configuration that `detail` names, or use another name.",
    "PRECONDITION_FAILED": "Read from your last offset, then decide again: the tail is not the one in `If-Match`.",
    "UNSUPPORTED_ENCODING": "Send the content without a `Content-Encoding`.",
    "CONTENT_TYPE_MISMATCH": "Send the content type of the stream.",
    "SEQUENCE_CONFLICT": "Send a greater `Stream-Seq`. Another writer may be ahead.",
    "PRODUCER_GAP": "Send the appends from `Producer-Expected-Seq` on.",
    "PRODUCER_FENCED": "Stop: a newer epoch writes. To take over, open a still newer epoch with sequence 0.",
    "INVALID_PRODUCER": "Send all three headers, with numbers from 0 to 2^53-1. Begin a new epoch with 0.",
    "INVALID_OFFSET": (
        "Send one offset: from the server, `-1` or `now`. In the ack of a wake (409) send one of that stream, at or "
        "after the last one."
    ),
    "INVALID_EXPIRY": "Send `Stream-TTL` in whole seconds or `Stream-Expires-At` in RFC 3339, not both.",
    "INVALID_FORK": "Correct the path, offset or sub-offset that `detail` names. A chain of forks may be too long.",
    "INVALID_RETENTION": "Send `Stream-Retention-Age` in whole seconds, `Stream-Retention-Bytes` in bytes, or both.",
    "FORK_SOURCE_NOT_FOUND": "Create the stream in `Stream-Forked-From` first.",
    "FORK_SOURCE_GONE": "Fork one of the source's forks: the source was deleted or has expired.",
    "INVALID_JSON": "Correct the text where `detail` says.",
    "EMPTY_BODY": "Send content, or `Stream-Closed: true`.",
    "MISSING_CONTENT_TYPE": "Send the `Content-Type` of the content.",
    "INVALID_REQUEST": "Correct what `detail` names, such as a name, a header, `live` or `limit`.",
    "WEBHOOK_URL_REJECTED": "Use an `https` URL with a public address, or allow [private ones](settings.md#streams).",
    "TOKEN_INVALID": "Send the token of this wake in `Authorization`.",
    "TOKEN_EXPIRED": "Wait for the next wake, which has a new token.",
    "SUBSCRIPTION_NOT_FOUND": "Create it with PUT. It may have been deleted.",
    "SUBSCRIPTION_ALREADY_EXISTS": "Delete it first, or use another id.",
    "ALREADY_CLAIMED": "Wait for the next wake: another worker has the lease.",
    "NO_PENDING_WORK": "Wait for the next wake.",
    "FENCED": "Drop the work, and wait for the next wake: the lease has ended.",
    "SUBSCRIPTION_LIMIT": "Delete a subscription, or raise `SEMEL_STREAMS_SUBSCRIPTIONS`.",
    "UNAUTHORIZED": BEARER,
    "FORBIDDEN": "Ask the operator for the role or the scope.",
    "FORBIDDEN_ORIGIN": ORIGIN,
    "TOKEN_NOT_FOUND": "List the ids with `semel token list`.",
    "TOKEN_EXISTS": "Create another token: this one is or was in the store, or is configured.",
    "TOKEN_ENDED": "Create a token instead of rotating one that has ended.",
    "TOKEN_ROTATED": "Rotate the successor that `detail` names.",
    "TOKEN_LIMIT": "Revoke a token, or raise `SEMEL_MAX_STORED_TOKENS`.",
    "NOT_FOUND": "Correct the path.",
    "METHOD_NOT_ALLOWED": METHOD,
    "WRONG_PLANE": PORT,
    "REQUEST_TIMEOUT": "Send it again on a new connection: the request stopped arriving.",
    "PAYLOAD_TOO_LARGE": "Split the content, or raise `SEMEL_MAX_BODY_BYTES` or `SEMEL_STREAMS_MAX_MESSAGES`.",
    "RATE_LIMITED": "Reserved. This version never sends it.",
    "QUOTA_EXCEEDED": QUOTA,
    "HEADERS_TOO_LARGE": "Send fewer or shorter headers, or a shorter name.",
    "INTERNAL_ERROR": f"{FAULT} in `detail`.",
    "OVERLOADED": f"{WAIT}: too many writes, uploads or connections.",
    "UNAVAILABLE": "Send it again in a moment: the store could not be read.",
    "NOT_STORED": "Send it again: the store refused before the commit, or the server is stopping.",
    "OUTCOME_UNKNOWN": "Send it again with the same key. The commit failed, and the server is stopping.",
    "bad_request": "Correct the message where `detail` says.",
    "validation_failed": "Correct what `errors` of the rejected item name.",
    "watermark_mismatch": (
        "Read on from `watermark` of the rejected item, decide again, and submit with the new `if_watermark`."
    ),
    "payload_too_large": "Make the event of the rejected item smaller, or raise `SEMEL_EVENTS_MESSAGE_BYTES`.",
    "forbidden": "Ask the operator for the partition, or leave it out.",
    "auth_failed": "Reconnect with a valid credential, under its own `client_id`.",
    "not_found": "Correct the id or the path. The event may be in partitions that you may not read.",
    "pruned": "Do without the content: retention has removed it. The event stays committed.",
    "rate_limited": "Wait, then submit the same again: too many writes are waiting. Over HTTP it is 503.",
    "quota_exceeded": QUOTA,
    "server_error": "Reconnect and submit the same ids: a fault, a stop, or an unreachable store.",
    "protocol_version_unsupported": "Use a version of `details.supported_versions`.",
    "reset": "Drop what you hold above `agreed_committed_id`, and [continue from there](events.md).",
    "profile_unsupported": "Use a profile of `details.supported_profiles`.",
    "jobs:invalid_request": "Correct what `field` and `message` name.",
    "jobs:idempotency_key_mismatch": "Send one key, or the same key in header and body.",
    "jobs:integrity_missing": "Add [`integrity`](jobs.md#result-integrity) to the report. The lease is still held.",
    "jobs:unauthorized": BEARER,
    "jobs:forbidden": "Ask the operator for the role or the queue. Under `/mesh/` the token may be wrong.",
    "jobs:forbidden_origin": ORIGIN,
    "jobs:not_found": (
        "Correct the id, key or path. The job may be expired or another caller's, and a result may not exist yet."
    ),
    "jobs:method_not_allowed": METHOD,
    "jobs:IDEMPOTENCY_KEY_COLLISION": "Use a new key for a new job. For a retry send the first payload.",
    "jobs:lease_lost": "Stop and drop the result: another worker has the job, or it has ended (`status`).",
    "jobs:lease_required": "Send the `lease_token` of the claim.",
    "jobs:result_conflict": "Drop this result: the lease has reported another one, which stands.",
    "jobs:group_closed": "Make a new group: this one is closed or full, or its join has ended.",
    "jobs:job_active": "Wait for the job's end, or release the key with `force`. Requeue needs a failed job.",
    "jobs:wrong_plane": PORT,
    "jobs:too_large": "Send at most `max` bytes. After a result or step the lease is still held.",
    "jobs:unsupported_media_type": "Send `Content-Type: application/json`.",
    "jobs:result_integrity_fail": (
        "Compute hash and signature again and report again; the lease is still held. As 500 for a read: the stored "
        "bytes are damaged and are not served."
    ),
    "jobs:quota_exceeded": QUOTA,
    "jobs:backpressure": f"{WAIT}, with the same key: the queue is full. It may be 503 by [setting](settings.md#jobs).",
    "jobs:idempotency_store_full": (
        f"{WAIT}, with the same key: too many keys are live. It may be 503 by [setting](settings.md#jobs)."
    ),
    "jobs:internal_error": f"{FAULT} in `message`.",
    "jobs:overloaded": f"{WAIT}, with the same key: too many writes or uploads.",
    "jobs:not_stored": "Send it again: the store refused before the commit, or is unreachable.",
    "jobs:not_durable": "Send it again with the same key or token: the commit failed.",
    "jobs:shutting_down": "Send it again with the same key or token, here or to another node.",
    "ledger:invalid_argument": "Correct what `detail` names: the shape, a limit, a key, a page token, a height.",
    "ledger:unauthenticated": BEARER,
    "ledger:permission_denied": (
        "Ask the operator for the role or the place, or use your own client id. The vault may be read-only."
    ),
    "ledger:forbidden_origin": ORIGIN,
    "ledger:not_found": "Correct the path or the id: there is no such entity, block or transaction.",
    "ledger:organization_not_found": "Check the slug. The organization may have been deleted.",
    "ledger:vault_not_found": "Check the slug. The vault may have been deleted.",
    "ledger:method_not_allowed": METHOD,
    "ledger:failed_precondition": (
        "Remove what `detail` names: an inactive organization, the API version, a key that created something else, or "
        "a client id without sequences left."
    ),
    "ledger:height_unavailable": "Ask for a later height: [retention](ledger.md#retention) has removed this one.",
    "ledger:resource_exhausted": "Send it again after `retry_after_ms`, with the same key and sequence.",
    "ledger:internal": f"{FAULT} in `detail`.",
    "ledger:data_loss": (
        "Restore the data from a backup: the stored chain contradicts itself, and takes no writes. The log has more "
        "under the error id in `detail`."
    ),
    "ledger:unimplemented": "Use a method that this version has.",
    "ledger:unavailable": "Send it again, same key and sequence: the server stops, is overloaded or has no store.",
    "ledger:deadline_exceeded": "Send it again with a later deadline.",
    "deltas:VALIDATION_ERROR": (
        "Correct what `error` and `details` name. 422: a `deltaId` is not the hash of its delta. 413: the body or a "
        "merged row is too large."
    ),
    "deltas:SCHEMA_ERROR": (
        "Add the column to the table's schema, or leave the delta out; a name may be no identifier. 400: the schema "
        "itself is malformed."
    ),
    "deltas:AUTH_ERROR": "Send a valid token. 403: it is not for this gateway, or lacks the role.",
    "deltas:FORBIDDEN": "Push under the token's own client id, and only your own deltas.",
    "deltas:FORBIDDEN_ORIGIN": ORIGIN,
    "deltas:NOT_FOUND": "Correct the path, method or gateway. A checkpoint without rows: pull from 0.",
    "deltas:CLOCK_DRIFT": "Set the client's clock, and push the deltas later. `serverHlc` shows the difference.",
    "deltas:CURSOR_EXPIRED": (
        "Take the checkpoint and pull from its cursor, or pull from 0: the log before the cursor was "
        "[removed](deltas.md#retention), or lost in a [restore](../operating/backup.md)."
    ),
    "deltas:RATE_LIMITED": "Wait for `Retry-After`, then push the same again: too fast, or too many gateways.",
    "deltas:QUOTA_EXCEEDED": QUOTA,
    "deltas:INTERNAL_ERROR": "Push the same again. Report the error id.",
    "deltas:BACKPRESSURE_ERROR": (
        "Wait for `Retry-After`, then send the same again: overloaded, stopping, or an unreachable store."
    ),
    "deltas:OUTCOME_UNKNOWN": "Push the same again: known deltas count once.",
}
"""What a caller does about a code: one or two imperative sentences."""


def error_tables() -> Iterator[str]:
    """One table for each surface, in the order of the registry."""
    shown = ""
    for kind in REGISTRY.values():
        heading = HEADINGS[_surface(kind)]
        if heading != shown:
            yield from ([""] if shown else [])
            yield from (f"## {heading}", "", "| code | status | title | retry | what to do |", "|---|---|---|---|---|")
            shown = heading
        yield f"| `{kind.code}` | {kind.status} | {kind.title} | {kind.retry.value} | {ADVICE[kind.code]} |"


def _surface(kind: ErrorKind) -> str:
    surface, _, name = kind.code.rpartition(":")
    return "events" if not surface and name.islower() else surface
