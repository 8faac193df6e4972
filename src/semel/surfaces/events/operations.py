"""The HTTP operations of events, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    ANY,
    COUNT,
    FLAG,
    OBJECT,
    PROBLEM_FORM,
    TEXT,
    AnySchema,
    HttpBody,
    HttpOperation,
    HttpParameter,
    HttpSuccess,
    NamedSchema,
    errors,
    list_of,
    record,
    text,
    whole,
)

_ROOT = "/v1/events"
_MOST = 2**53 - 1
_SHELL = errors(
    "quota_exceeded",
    "bad_request",
    "auth_failed",
    ("auth_failed", 403),
    "forbidden",
    "FORBIDDEN_ORIGIN",
    "not_found",
    ("bad_request", 405),
    "WRONG_PLANE",
    "server_error",
    ("server_error", 503),
    ("rate_limited", 503),
)
_BODY = errors(("bad_request", 413))
_RESET = errors("reset")
_CLIENT = HttpParameter("client_id", "query", "The client; with credentials it must be theirs.", text(1, 256))
_ID = whole(0, _MOST)

EVENT_ITEM = NamedSchema(
    "EventItem",
    record(
        {"id": text(1, 256), "partitions": list_of(text(1, 256), 1, 64), "event": record({"type": TEXT})},
        {"if_watermark": ANY},
    ),
)
EVENT_PAGE = NamedSchema("EventPage", record({"events": list_of(OBJECT), "has_more": FLAG}))
EVENT_RESULTS = NamedSchema("EventResults", record({"results": list_of(OBJECT)}))


def _query(name: str, about: str, schema: AnySchema) -> HttpParameter:
    return HttpParameter(name, "query", about, schema)


_TAIL = (
    HttpParameter("partition", "query", "Which partitions.", list_of(text(1, 256), 1), is_required=True),
    _query("type", "Only events of these types.", list_of(TEXT)),
    _query("since", "Only events behind this position.", _ID),
    _query("log_epoch", "The epoch that the cursor is of.", COUNT),
    _query("limit", "How many; 500 if absent.", whole(1, 1_000)),
    _query("to", "The `sync_to_committed_id` of the cycle.", _ID),
    _query("order", "Forwards or backwards.", {"enum": ["asc", "desc"]}),
    _query("last", "The last events.", whole(1, 1_000)),
    _query("before", "Only events below this position.", _ID),
    _CLIENT,
    HttpParameter("Last-Event-ID", "header", "Of an event stream: the last event that was seen.", _ID),
)


def _made(
    name: str,
    method: str,
    path: str,
    about: str,
    *,
    parameters: tuple[HttpParameter, ...] = (),
    body: AnySchema | None = None,
    role: str,
    schema: AnySchema = OBJECT,
) -> HttpOperation:
    return HttpOperation(
        name,
        method,
        path,
        about,
        (HttpSuccess(200, "Done.", schema),),
        _SHELL if method == "GET" else _SHELL + _BODY,
        PROBLEM_FORM,
        parameters,
        None if body is None else HttpBody(body),
        role=role,
    )


_READ = _made("readEvents", "GET", _ROOT, "A page of events, an event stream, or a WebSocket.", role="read")
_SUBMIT = _made(
    "submitEvents",
    "POST",
    _ROOT,
    "Submit events.",
    parameters=(_CLIENT,),
    body=record({"events": list_of(EVENT_ITEM, 1, 100)}, {"client_id": text(1, 256)}),
    role="write",
    schema=EVENT_RESULTS,
)
_EVENT = _made(
    "getEvent",
    "GET",
    f"{_ROOT}/id/{{id}}",
    "One event.",
    parameters=(HttpParameter("id", "path", "The id of the event.", text(1, 256)), _CLIENT),
    role="read",
)

OPERATIONS = (
    _READ._replace(
        successes=(
            HttpSuccess(101, "A WebSocket."),
            HttpSuccess(200, "A page, or an event stream.", EVENT_PAGE),
            HttpSuccess(200, "A page, or an event stream.", TEXT, ("text/event-stream",)),
        ),
        errors=_READ.errors + _RESET,
        parameters=_TAIL,
        is_websocket=True,
    ),
    _SUBMIT,
    _EVENT._replace(errors=_EVENT.errors + errors("pruned")),
    _made(
        "listPartitions",
        "GET",
        f"{_ROOT}/partitions",
        "List partitions.",
        parameters=(
            _query("prefix", "Only names that begin with this.", TEXT),
            _query("after", "Only names behind this one.", TEXT),
            _query("limit", "How many; 500 if absent.", whole(1, 1_000)),
            _CLIENT,
        ),
        role="read",
        schema=record({"partitions": list_of(OBJECT), "has_more": FLAG}),
    ),
)
