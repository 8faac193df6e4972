"""The HTTP operations of events, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    ANY,
    BYTES,
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
_GROUP_PATH = f"{_ROOT}/groups/{{group}}"
_SNAPSHOT_PATH = f"{_ROOT}/snapshots/{{partition}}"
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
_GROUPS = errors("group_not_found")
_NAME = HttpParameter("group", "path", "The name of the group.", text(1, 256))
_PARTITION = HttpParameter("partition", "path", "The name of the partition.", text(1, 256))
_POSITION = HttpParameter("committed_id", "path", "The position.", whole(0, _MOST))
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
_START = {"anyOf": [{"enum": ["beginning", "now"]}, _ID]}
GROUP_DRAFT = NamedSchema(
    "GroupDefinition",
    record(
        {"partitions": list_of(text(1, 256), 1, 64)},
        {
            "order": {"enum": ["strict", "unordered"]},
            "start": _START,
            "lease_ms": whole(100, 43_200_000),
            "max_deliveries": whole(0, 1_000),
            "max_in_flight": whole(1, 1_000),
            "batch": whole(1, 100),
            "max_parked": whole(0, 1_000),
        },
    ),
)
_LEASE = {"lease": text(1, 256)}
_IDS = {"committed_ids": list_of(_ID, 1), "up_to_committed_id": _ID}
_PARKED = record({}, {"committed_ids": list_of(_ID, 1), "limit": whole(1, 1_000)})


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


def _of_a_group(name: str, method: str, below: str, about: str, body: AnySchema | None, role: str) -> HttpOperation:
    made = _made(name, method, _GROUP_PATH + below, about, parameters=(_NAME,), body=body, role=role)
    conflicts = errors("lease_ended", "out_of_order", "fetch_conflict") if "work" in role else ()
    return made._replace(errors=made.errors + _GROUPS + _RESET + conflicts)


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
_CREATE = _of_a_group("createGroup", "PUT", "", "Create a group, or confirm an equal one.", GROUP_DRAFT, "read, write")
_GROUP_OPERATIONS = (
    _made(
        "listGroups",
        "GET",
        f"{_ROOT}/groups",
        "List groups.",
        parameters=(_query("after", "A name.", TEXT), _query("limit", "How many; 50 if absent.", whole(1, 100))),
        role="read",
    ),
    _CREATE._replace(
        successes=(HttpSuccess(201, "Created.", OBJECT), *_CREATE.successes),
        errors=_CREATE.errors + errors("group_exists", "limit_reached"),
    ),
    _of_a_group("getGroup", "GET", "", "Show a group.", None, "read"),
    _of_a_group("deleteGroup", "DELETE", "", "Delete a group; again is no change.", None, "read, write"),
    _of_a_group(
        "resetGroup",
        "POST",
        "/reset",
        "Deliver from another position.",
        record({"start": _START}, {"reset_id": text(1, 256)}),
        "read, write",
    ),
    _of_a_group(
        "fetchEvents",
        "POST",
        "/fetch",
        "Take a lease of events.",
        record(
            {"member": text(1, 256), "fetch_id": text(1, 256)}, {"batch": whole(1, 100), "wait_ms": whole(0, 30_000)}
        ),
        "read, work",
    ),
    _of_a_group("ackEvents", "POST", "/ack", "Acknowledge events.", record(_LEASE, _IDS), "read, work"),
    _of_a_group(
        "nackEvents",
        "POST",
        "/nack",
        "Give events back.",
        record(_LEASE, _IDS | {"delay_ms": COUNT, "reason": TEXT}),
        "read, work",
    ),
    _of_a_group("extendLease", "POST", "/extend", "Extend a lease.", record(_LEASE), "read, work"),
    _of_a_group("listParked", "GET", "/parked", "List parked events.", None, "read")._replace(
        parameters=(_NAME, _query("after", "A committed id.", _ID), _query("limit", "How many.", whole(1, 100)))
    ),
    _of_a_group("replayParked", "POST", "/parked/replay", "Deliver parked events again.", _PARKED, "read, write"),
    _of_a_group("dropParked", "POST", "/parked/drop", "Drop parked events.", _PARKED, "read, write"),
)
_SNAPSHOT = HttpSuccess(200, "The snapshot, in its media type.", ANY, ("*/*",), ("Semel-Committed-Id", "ETag"))


def _of_a_snapshot(name: str, method: str, below: str, about: str, role: str) -> HttpOperation:
    return _made(name, method, _SNAPSHOT_PATH + below, about, parameters=(_PARTITION,), role=role)


_LATEST = _of_a_snapshot("latestSnapshot", "GET", "", "The newest snapshot of a partition.", "read")
_ONE = _of_a_snapshot("getSnapshot", "GET", "/{committed_id}", "One snapshot.", "read")
_PUT = _of_a_snapshot("putSnapshot", "PUT", "/{committed_id}", "Store a snapshot.", "write")
_DROP = _of_a_snapshot("deleteSnapshot", "DELETE", "/{committed_id}", "Delete a snapshot.", "write")
_MISSING = errors("snapshot_not_found")
_SNAPSHOT_OPERATIONS = (
    _LATEST._replace(
        successes=(_SNAPSHOT,),
        errors=_LATEST.errors + _MISSING,
        parameters=(_PARTITION, _query("at_most", "The newest at or below this position.", _ID)),
    ),
    _of_a_snapshot("listSnapshots", "GET", "/list", "List snapshots, newest first.", "read")._replace(
        parameters=(_PARTITION, _query("limit", "How many.", whole(1, 100)))
    ),
    _ONE._replace(successes=(_SNAPSHOT,), errors=_ONE.errors + _MISSING, parameters=(_PARTITION, _POSITION)),
    _PUT._replace(
        successes=(HttpSuccess(201, "Stored.", OBJECT), *_PUT.successes),
        errors=_PUT.errors + _RESET + errors("snapshot_exists", "limit_reached"),
        parameters=(_PARTITION, _POSITION),
        body=HttpBody(BYTES, ("application/octet-stream", "application/json"), is_required=False),
    ),
    _DROP._replace(parameters=(_PARTITION, _POSITION)),
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
    *_GROUP_OPERATIONS,
    *_SNAPSHOT_OPERATIONS,
)
