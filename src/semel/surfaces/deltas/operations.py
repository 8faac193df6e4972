"""The HTTP operations of deltas, declared for the OpenAPI document; each path exists with and without `/v1`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from semel.server.openapi.operation import (
    ANY,
    COUNT,
    FLAG,
    OBJECT,
    TEXT,
    AnySchema,
    ErrorForm,
    HttpAccess,
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

DELTAS_FORM = ErrorForm(
    "application/json",
    NamedSchema(
        "DeltaError",
        record({"error": TEXT, "code": TEXT, "requestId": TEXT}, {"details": ANY, "serverHlc": TEXT}),
    ),
)
_OPEN = errors(
    "deltas:VALIDATION_ERROR",
    "deltas:AUTH_ERROR",
    ("deltas:AUTH_ERROR", 403),
    "deltas:FORBIDDEN",
    "deltas:FORBIDDEN_ORIGIN",
    "deltas:NOT_FOUND",
    "deltas:RATE_LIMITED",
    "deltas:INTERNAL_ERROR",
    "deltas:BACKPRESSURE_ERROR",
)
_SHELL = errors("deltas:QUOTA_EXCEEDED") + _OPEN
_BODY = errors(("deltas:VALIDATION_ERROR", 413), "deltas:OUTCOME_UNKNOWN")
_SCHEMA = errors("deltas:SCHEMA_ERROR", ("deltas:SCHEMA_ERROR", 400), ("deltas:VALIDATION_ERROR", 422))
_CURSOR = errors("deltas:CURSOR_EXPIRED")
_HLC = text(1, 20, pattern="^(0|[1-9][0-9]*)$")
_IDENTIFIER = text(1, 64, pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")
_CLIENT = text(1, 256)
_GATEWAY = HttpParameter("gateway", "path", "The name of the gateway.", text(1, 256))
_PAGES = (
    HttpParameter("after", "query", "The name to go on after.", TEXT),
    HttpParameter("limit", "query", "How many; 100 if absent.", whole(1)),
)
_DIALECT = HttpParameter("dialect", "query", "The plain dialect.", {"enum": ["plain"]})

_OP: dict[str, Any] = {"enum": ["INSERT", "UPDATE", "DELETE"]}
DELTA = NamedSchema(
    "Delta",
    {
        **record(
            {
                "table": _IDENTIFIER,
                "rowId": text(1, 1_024),
                "clientId": _CLIENT,
                "columns": list_of(record({"column": _IDENTIFIER}, {"value": ANY}), 0, 1_000),
                "hlc": _HLC,
                "deltaId": text(64, 64, pattern="^[0-9a-f]{64}$"),
            },
            {"op": _OP, "deltaType": _OP},
        ),
        "anyOf": [{"required": ["op"]}, {"required": ["deltaType"]}],
    },
)
PUSH = NamedSchema(
    "Push", record({"clientId": _CLIENT, "deltas": list_of(DELTA)}, {"lastSeenHlc": _HLC, "cursor": _HLC})
)
PUSHED = NamedSchema(
    "Pushed", record({"serverHlc": TEXT, "accepted": COUNT, "duplicates": COUNT, "deltas": list_of(OBJECT)})
)
PULLED = NamedSchema(
    "Pulled", record({"deltas": list_of(OBJECT), "serverHlc": TEXT, "hasMore": FLAG}, {"epoch": COUNT})
)
TABLE = NamedSchema(
    "TableSchema",
    record(
        {
            "table": _IDENTIFIER,
            "columns": list_of(
                record({"name": _IDENTIFIER, "type": {"enum": ["string", "number", "boolean", "json", "null"]}}),
                0,
                1_000,
            ),
        }
    ),
)
_FILTER = record({"column": TEXT, "op": {"enum": ["eq", "neq", "in", "gt", "lt", "gte", "lte"]}, "value": text(1)})
_BUCKET = record({"name": TEXT, "tables": list_of(TEXT), "filters": list_of(_FILTER)})
SYNC_RULES = NamedSchema("SyncRules", record({"version": {"const": 1}, "buckets": list_of(_BUCKET)}))

_STAMP: dict[str, AnySchema] = {"hlc": _HLC, "clientId": _CLIENT, "deltaId": TEXT}
_CELL = record({"column": TEXT, "value": ANY, **_STAMP})
_ROW = record({"rowId": TEXT, "isDeleted": FLAG, "columns": list_of(_CELL), **_STAMP})
TABLES = NamedSchema("DeltaTables", record({"tables": list_of(TEXT), "hasMore": FLAG}))
ROWS = NamedSchema("DeltaRows", record({"rows": list_of(_ROW), "next": nullable("string")}))
_ENTRY = record(
    {
        "position": _HLC,
        "op": _OP,
        "delivered": {"enum": ["INSERT", "UPDATE", "DELETE", None]},
        "columns": list_of(OBJECT),
        **_STAMP,
    }
)
ENTRIES = NamedSchema(
    "DeltaRowEntries",
    record({"entries": list_of(_ENTRY), "position": _HLC, "hasMore": FLAG, "cut": _HLC, "end": _HLC}),
)
_ROW_ID = HttpParameter("row", "query", "The id of a row.", text(1, 1_024))
_OF_ROWS = (
    _GATEWAY,
    HttpParameter("table", "query", "The table.", text(1, 64), is_required=True),
    _ROW_ID,
    HttpParameter("after", "query", "The `next` of the page before.", _HLC),
    HttpParameter("limit", "query", "How many; 100 if absent.", whole(1)),
)
_OF_ENTRIES = (
    *_OF_ROWS[:2],
    _ROW_ID._replace(is_required=True),
    HttpParameter("column", "query", "Only deltas of this column, and those that delete the row.", TEXT),
    HttpParameter("after", "query", "The `position` of the page before.", _HLC),
    _OF_ROWS[-1],
)


def _get(
    name: str, path: str, about: str, schema: AnySchema, role: str, parameters: tuple[HttpParameter, ...] = ()
) -> HttpOperation:
    success = (HttpSuccess(200, "Found.", schema),)
    return HttpOperation(
        name, "GET", path, about, success, _SHELL, DELTAS_FORM, parameters, None, role=role, has_head=True
    )


def _post(name: str, path: str, about: str, schema: AnySchema, body: AnySchema | None, role: str) -> HttpOperation:
    return HttpOperation(
        name,
        "POST",
        path,
        about,
        (HttpSuccess(200, "Done, and on disk.", schema),),
        _SHELL + _BODY + _SCHEMA,
        DELTAS_FORM,
        (_GATEWAY,),
        None if body is None else HttpBody(body),
        role=role,
    )


_PUSH = _post("push", "sync/{gateway}/push", "Push deltas.", PUSHED, PUSH, "write")
_PULL = _get(
    "pull",
    "sync/{gateway}/pull",
    "Pull entries behind a cursor.",
    PULLED,
    "read",
    (
        _GATEWAY,
        HttpParameter("since", "query", "`0`, or a cursor.", _HLC, is_required=True),
        HttpParameter("clientId", "query", "The client that pulls.", _CLIENT, is_required=True),
        HttpParameter("limit", "query", "How many; 100 if absent.", whole(1)),
        HttpParameter("source", "query", "No other source exists here.", TEXT),
        _DIALECT,
        HttpParameter("ownAfter", "query", "Leave own entries behind this position out.", _HLC),
    ),
)
_CHECKPOINT = _get(
    "checkpoint",
    "sync/{gateway}/checkpoint",
    "All rows as a stream.",
    TEXT,
    "read",
    (_GATEWAY, HttpParameter("clientId", "query", "The client that begins.", _CLIENT), _DIALECT),
)
_ROWS = HttpSuccess(
    200,
    "Every row, in frames of protobuf or in lines of JSON.",
    {"type": "string", "format": "binary"},
    ("application/x-lakesync-checkpoint-stream", "application/x-ndjson"),
    ("X-Checkpoint-Hlc",),
)
_SOCKET = HttpOperation(
    "deltasSocket",
    "GET",
    "sync/{gateway}/ws",
    "Push and pull over WebSocket; without a handshake there is nothing here.",
    (HttpSuccess(101, "Switching protocols."),),
    _SHELL + errors(("deltas:VALIDATION_ERROR", 426)),
    DELTAS_FORM,
    (_GATEWAY, HttpParameter("token", "query", "The token, for browsers.", TEXT)),
    role="read; write to push",
    is_websocket=True,
)
_TYPES = HttpOperation(
    "connectorTypes",
    "GET",
    "connectors/types",
    "The types of connectors: none.",
    (HttpSuccess(200, "An empty list.", list_of(ANY)),),
    _OPEN,
    DELTAS_FORM,
    access=HttpAccess.OPEN,
    has_head=True,
)
_CLIENTS = record({"clients": list_of(text(1, 256), 1, 100)})
_ALL = (
    _PUSH._replace(errors=_PUSH.errors + errors("deltas:CLOCK_DRIFT") + _CURSOR),
    _PULL._replace(errors=_PULL.errors + _CURSOR),
    _CHECKPOINT._replace(successes=(_ROWS,)),
    _SOCKET,
    _get("actions", "sync/{gateway}/actions", "Actions of connectors: none.", OBJECT, "read", (_GATEWAY,)),
    _post("saveSchema", "admin/schema/{gateway}", "Set the columns of a table.", OBJECT, TABLE, "admin"),
    _post("saveSyncRules", "admin/sync-rules/{gateway}", "Set which rows a caller sees.", OBJECT, SYNC_RULES, "admin"),
    _post("flush", "admin/flush/{gateway}", "Answer when earlier writes are on disk.", OBJECT, None, "admin"),
    _get("gatewayMetrics", "admin/metrics/{gateway}", "The sizes of a gateway.", OBJECT, "admin", (_GATEWAY,)),
    _get("listClients", "admin/clients/{gateway}", "List clients.", OBJECT, "admin", (_GATEWAY, *_PAGES)),
    _post("forgetClients", "admin/forget-clients/{gateway}", "Forget clients.", OBJECT, _CLIENTS, "admin"),
    _get(
        "listTables", "admin/tables/{gateway}", "List the tables that have rows.", TABLES, "admin", (_GATEWAY, *_PAGES)
    ),
    _get("listRows", "admin/rows/{gateway}", "List merged rows, with who set each column.", ROWS, "admin", _OF_ROWS),
    _get(
        "listRowEntries",
        "admin/entries/{gateway}",
        "List the deltas of one row, lost ones too, from 5,000 positions of the log.",
        ENTRIES,
        "admin",
        _OF_ENTRIES,
    ),
    _get("listGateways", "admin/gateways", "List gateways.", OBJECT, "admin", _PAGES),
    _TYPES,
)
"""The operations; their paths are relative to `/v1/` and to `/`."""


def _everywhere() -> Iterator[HttpOperation]:
    for one in _ALL:
        yield one._replace(path=f"/v1/{one.path}")
        yield one._replace(path=f"/{one.path}", id=f"{one.id}Unversioned")


OPERATIONS = tuple(_everywhere())
