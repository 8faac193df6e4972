"""The HTTP operations of streams, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    ANY,
    COUNT,
    FLAG,
    PROBLEM_FORM,
    TEXT,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    errors,
    list_of,
    nullable,
    record,
    text,
    whole,
)
from semel.surfaces.streams.subscriptions.operations import LISTED_SUBSCRIPTION, SUBSCRIPTION_OPERATIONS

_PATH, _ALIAS = "/v1/stream/{name}", "/streams/{name}"
_NAME = HttpParameter("name", "path", "The name of the stream; it may contain slashes.", text(1, 1_024))
_SHELL = (
    "UNAUTHORIZED",
    "FORBIDDEN",
    "FORBIDDEN_ORIGIN",
    "METHOD_NOT_ALLOWED",
    "WRONG_PLANE",
    "INTERNAL_ERROR",
    "QUOTA_EXCEEDED",
)
_ENGINE = ("OVERLOADED", "UNAVAILABLE", "NOT_STORED", "OUTCOME_UNKNOWN")
_NAMED = (*_SHELL, "INVALID_REQUEST", "NOT_FOUND")
_ANY_MEDIA = ("application/octet-stream", "application/json", "text/plain")
_CONTENT = HttpBody(ANY, _ANY_MEDIA, is_required=False)


def _header(name: str, about: str, schema: object = TEXT) -> HttpParameter:
    assert isinstance(schema, dict)
    return HttpParameter(name, "header", about, schema)


_CLOSED = _header("Stream-Closed", "`true` creates a closed stream, or closes the stream.")
_PRODUCER = ("Producer-Epoch", "Producer-Seq")

STREAM = NamedSchema(
    "Stream",
    record(
        {
            "name": TEXT,
            "content_type": TEXT,
            "next_offset": TEXT,
            "closed": FLAG,
            "ttl_seconds": nullable("integer"),
            "expires_at": nullable("string"),
            "created_ms": COUNT,
            "updated_ms": COUNT,
            "forks": COUNT,
            "forked_from": {
                "anyOf": [
                    record({"name": nullable("string"), "offset": TEXT, "sub_offset": COUNT}),
                    {"type": "null"},
                ]
            },
        }
    ),
)
PRODUCER = NamedSchema("StreamProducer", record({"id": nullable("string"), "key": TEXT, "epoch": COUNT, "seq": COUNT}))

_CREATE = HttpOperation(
    "createStream",
    "PUT",
    _PATH,
    "Create a stream or a fork, or confirm an equal one.",
    (
        HttpSuccess(201, "Created.", headers=("Location", "Stream-Next-Offset")),
        HttpSuccess(200, "A stream with this configuration exists.", headers=("Stream-Next-Offset",)),
    ),
    errors(
        *_NAMED,
        *_ENGINE,
        "INVALID_EXPIRY",
        "INVALID_FORK",
        "INVALID_JSON",
        "INVALID_RETENTION",
        "FORK_SOURCE_NOT_FOUND",
        "FORK_SOURCE_GONE",
        "STREAM_EXISTS",
        "STREAM_GONE",
        "CONTENT_TYPE_MISMATCH",
        "PAYLOAD_TOO_LARGE",
        "UNSUPPORTED_ENCODING",
    ),
    PROBLEM_FORM,
    (
        _NAME,
        _CLOSED,
        _header("Stream-TTL", "Seconds without use after which the stream ends."),
        _header("Stream-Expires-At", "When the stream ends, as an RFC 3339 time."),
        _header("Stream-Forked-From", "The stream to fork."),
        _header("Stream-Fork-Offset", "Where to fork it."),
        _header("Stream-Fork-Sub-Offset", "The number of messages or bytes of the next append."),
        _header("Stream-Retention-Age", "Drop the front of the stream by age, in seconds."),
        _header("Stream-Retention-Bytes", "Drop the front of the stream by size."),
    ),
    _CONTENT,
    role="write",
)
_APPEND = HttpOperation(
    "appendToStream",
    "POST",
    _PATH,
    "Append; append and close; close.",
    (
        HttpSuccess(204, "Stored, closed, or a duplicate.", headers=("Stream-Next-Offset", "Idempotency-Replayed")),
        HttpSuccess(200, "Content of a producer was stored.", headers=("Stream-Next-Offset", *_PRODUCER)),
    ),
    errors(
        *_NAMED,
        *_ENGINE,
        "STREAM_NOT_FOUND",
        "STREAM_GONE",
        "STREAM_CLOSED",
        "INVALID_PRODUCER",
        "INVALID_IDEMPOTENCY_KEY",
        "INVALID_JSON",
        "EMPTY_BODY",
        "MISSING_CONTENT_TYPE",
        "IDEMPOTENCY_MISMATCH",
        "CONTENT_TYPE_MISMATCH",
        "PRODUCER_FENCED",
        "PRODUCER_GAP",
        "SEQUENCE_CONFLICT",
        "PRECONDITION_FAILED",
        "PAYLOAD_TOO_LARGE",
        "UNSUPPORTED_ENCODING",
    ),
    PROBLEM_FORM,
    (
        _NAME,
        _CLOSED,
        _header("Idempotency-Key", "The client's name for this append.", text(1, 256)),
        _header("Producer-Id", "The id of a producer; with its epoch and its sequence, or none of them."),
        _header("Producer-Epoch", "The epoch of the producer.", whole()),
        _header("Producer-Seq", "The sequence of this append.", whole()),
        _header("Stream-Seq", "Must be greater, bytewise, than the last one accepted."),
        _header("If-Match", "Append only if a read up to the tail gave one of these ETags."),
    ),
    _CONTENT,
    role="write",
)
_READ = HttpOperation(
    "readStream",
    "GET",
    _PATH,
    "Read: catch up, long poll, or an event stream.",
    (
        HttpSuccess(200, "Content, in the media type of the stream, or an event stream.", ANY, ("*/*",)),
        HttpSuccess(204, "A long poll ended with nothing, or with closure."),
        HttpSuccess(304, "The copy of the client still holds."),
    ),
    errors(*_NAMED, "UNAVAILABLE", "STREAM_NOT_FOUND", "STREAM_GONE", "INVALID_OFFSET"),
    PROBLEM_FORM,
    (
        _NAME,
        HttpParameter("offset", "query", "`-1`, `now`, or an offset from the server.", TEXT),
        HttpParameter("live", "query", "How to wait for content; needs `offset`.", {"enum": ["long-poll", "sse"]}),
        HttpParameter("cursor", "query", "From the last answer.", TEXT),
        _header("If-None-Match", "An ETag that the client has."),
    ),
    role="read",
)
_DESCRIBE = HttpOperation(
    "describeStream",
    "HEAD",
    _PATH,
    "Describe a stream, or look up a key or a producer.",
    (HttpSuccess(200, "The description, in headers.", headers=("Stream-Next-Offset", "Content-Type")),),
    errors(*_NAMED, "UNAVAILABLE", "STREAM_NOT_FOUND", "STREAM_GONE", "INVALID_IDEMPOTENCY_KEY", "INVALID_PRODUCER"),
    PROBLEM_FORM,
    (
        _NAME,
        _header("Lookup-Key", "What is stored under this key.", text(1, 256)),
        _header("Lookup-Producer", "What is stored of this producer.", text(1, 256)),
    ),
    role="read",
)
_DELETE = HttpOperation(
    "deleteStream",
    "DELETE",
    _PATH,
    "Delete a stream.",
    (HttpSuccess(204, "Deleted."),),
    errors(*_NAMED, *_ENGINE, "STREAM_NOT_FOUND", "STREAM_GONE"),
    PROBLEM_FORM,
    (_NAME,),
    role="write",
)
_PAGE = (
    HttpParameter("after", "query", "The `after` of the page before.", TEXT),
    HttpParameter("limit", "query", "How many; 100 if absent.", whole(1, 1_000)),
)


def _list(
    name: str,
    path: str,
    about: str,
    member: str,
    item: NamedSchema,
    parameters: tuple[HttpParameter, ...] = (),
    codes: tuple[str, ...] = (),
) -> HttpOperation:
    return HttpOperation(
        name,
        "GET",
        path,
        about,
        (HttpSuccess(200, "A page.", record({member: list_of(item), "after": nullable("string")})),),
        errors(*_SHELL, "INVALID_REQUEST", "UNAVAILABLE", *codes),
        PROBLEM_FORM,
        (*parameters, *_PAGE),
        role="read",
        has_head=True,
    )


_LISTS = (
    _list(
        "listStreams",
        "/v1/streams",
        "List the streams that the caller may read, in the order of their names.",
        "streams",
        STREAM,
        (
            HttpParameter("prefix", "query", "Only names that begin with this.", TEXT),
            HttpParameter("source", "query", "Only forks of this stream, among the next 1,000 names.", TEXT),
        ),
        ("STREAM_NOT_FOUND", "STREAM_GONE"),
    ),
    _list(
        "listProducers",
        "/v1/streams/producers",
        "List the producers of a stream with their last sequences.",
        "producers",
        PRODUCER,
        (HttpParameter("stream", "query", "The name of the stream.", text(1, 1_024), is_required=True),),
        ("STREAM_NOT_FOUND", "STREAM_GONE"),
    ),
    _list(
        "listSubscriptions",
        "/v1/streams/subscriptions",
        "List the subscriptions that the caller may read.",
        "subscriptions",
        LISTED_SUBSCRIPTION,
    ),
)

_OF_A_STREAM = (_CREATE, _APPEND, _READ, _DESCRIBE, _DELETE)
_UNVERSIONED = tuple(one._replace(path=_ALIAS, id=f"{one.id}Unversioned") for one in _OF_A_STREAM)

OPERATIONS = (*_OF_A_STREAM, *_UNVERSIONED, *_LISTS, *SUBSCRIPTION_OPERATIONS)
