"""The HTTP operations of subscriptions, declared for the OpenAPI document."""

from __future__ import annotations

from semel.server.openapi.operation import (
    ANY,
    COUNT,
    FLAG,
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

CONTROL_FORM = ErrorForm(
    "application/json", NamedSchema("ControlError", record({"error": record({"code": TEXT, "message": TEXT})}))
)
_ROOT = "/v1/stream/__ds"
_ONE = f"{_ROOT}/subscriptions/{{id}}"
_ID = HttpParameter("id", "path", "The id of the subscription.", text(1, 256))
_SHELL = ("FORBIDDEN_ORIGIN", "NOT_FOUND", "METHOD_NOT_ALLOWED", "WRONG_PLANE", "INTERNAL_ERROR", "UNAVAILABLE")
_NAMED = (*_SHELL, "INVALID_REQUEST", "UNAUTHORIZED", "FORBIDDEN", "QUOTA_EXCEEDED")
_WRITE = ("OVERLOADED", "NOT_STORED", "OUTCOME_UNKNOWN")
_BODY = ("PAYLOAD_TOO_LARGE",)

_LINK = record(
    {
        "path": TEXT,
        "link_type": {"enum": ["explicit", "glob"]},
        "acked_offset": TEXT,
        "tail_offset": nullable("string"),
    }
)
_WAKE = record(
    {
        "phase": {"enum": ["idle", "waking", "leased"]},
        "generation": COUNT,
        "attempts": COUNT,
        "worker": nullable("string"),
        "next_action_in_ms": nullable("integer"),
    }
)
SUBSCRIPTION = NamedSchema(
    "Subscription",
    record(
        {
            "id": TEXT,
            "subscription_id": TEXT,
            "type": {"enum": ["webhook", "pull-wake"]},
            "pattern": nullable("string"),
            "streams": list_of(_LINK),
            "lease_ttl_ms": COUNT,
            "created_at": TEXT,
            "status": {"enum": ["active", "failed"]},
            "description": nullable("string"),
            "wake": _WAKE,
        },
        {
            "streams_truncated": FLAG,
            "webhook": record({"url": TEXT, "signing": record({"alg": TEXT, "kid": TEXT, "jwks_url": TEXT})}),
            "wake_stream": TEXT,
        },
    ),
)
LISTED_SUBSCRIPTION = NamedSchema(
    "ListedSubscription",
    record(
        {
            "id": TEXT,
            "type": {"enum": ["webhook", "pull-wake"]},
            "pattern": nullable("string"),
            "webhook_url": nullable("string"),
            "wake_stream": nullable("string"),
            "created_at": TEXT,
            "status": {"enum": ["active", "failed"]},
            "wake": _WAKE,
        }
    ),
)
_NAMES = list_of(text(1, 1_024), 1)
DRAFT = NamedSchema(
    "SubscriptionDraft",
    record(
        {"type": {"enum": ["webhook", "pull-wake"]}},
        {
            "pattern": text(1, 1_024),
            "streams": _NAMES,
            "webhook": record({"url": text(1, 4_096)}),
            "wake_stream": text(1, 1_024),
            "lease_ttl_ms": whole(1_000, 600_000),
            "description": text(0, 1_024),
        },
    ),
)
_ACK = record({"stream": text(1, 1_024), "offset": TEXT})
LEASE_CALL = NamedSchema(
    "LeaseCall",
    record(
        {"generation": whole(0, 2**53 - 1), "wake_id": text(1, 128)},
        {"acks": list_of(_ACK), "done": FLAG},
    ),
)
_WAKE_ITEM = record(
    {"path": TEXT, "link_type": TEXT, "acked_offset": TEXT, "tail_offset": TEXT, "has_pending": FLAG},
)
CLAIMED = NamedSchema(
    "WakeClaim",
    record(
        {"wake_id": TEXT, "generation": COUNT, "token": TEXT, "streams": list_of(_WAKE_ITEM), "lease_ttl_ms": COUNT}
    ),
)


def _operation(
    name: str,
    method: str,
    path: str,
    about: str,
    successes: tuple[HttpSuccess, ...],
    codes: tuple[str, ...],
    body: AnySchema | None = None,
    role: str = "",
    more: tuple[HttpParameter, ...] = (),
) -> HttpOperation:
    """Without a role: a call that names streams or takes work is told of content, so that it needs to read, too."""
    return HttpOperation(
        name,
        method,
        path,
        about,
        successes,
        errors(*_NAMED, *codes),
        CONTROL_FORM,
        (_ID, *more),
        None if body is None else HttpBody(body),
        role=role or ("write" if body is None else "read, write"),
    )


def _lease_call(name: str, about: str, success: HttpSuccess) -> HttpOperation:
    codes = ("TOKEN_INVALID", "TOKEN_EXPIRED", "SUBSCRIPTION_NOT_FOUND", "FENCED", "INVALID_REQUEST", "INVALID_OFFSET")
    return HttpOperation(
        f"{name}Wake",
        "POST",
        f"{_ONE}/{name}",
        about,
        (success,),
        errors(*_SHELL, *_WRITE, *_BODY, *codes),
        CONTROL_FORM,
        (_ID,),
        HttpBody(LEASE_CALL),
        HttpAccess.WAKE,
    )


_ACKED = HttpSuccess(200, "Acknowledged.", record({"ok": FLAG, "next_wake": ANY}))

SUBSCRIPTION_OPERATIONS = (
    _operation(
        "putSubscription",
        "PUT",
        _ONE,
        "Create a subscription, or confirm an equal one.",
        (
            HttpSuccess(201, "Created.", SUBSCRIPTION, headers=("Location",)),
            HttpSuccess(200, "A subscription with this configuration exists.", SUBSCRIPTION),
        ),
        (*_WRITE, *_BODY, "WEBHOOK_URL_REJECTED", "SUBSCRIPTION_ALREADY_EXISTS", "SUBSCRIPTION_LIMIT"),
        DRAFT,
    ),
    _operation(
        "getSubscription",
        "GET",
        _ONE,
        "Show a subscription and its acknowledged offsets.",
        (HttpSuccess(200, "The subscription.", SUBSCRIPTION),),
        ("SUBSCRIPTION_NOT_FOUND",),
        role="read",
    ),
    _operation(
        "deleteSubscription",
        "DELETE",
        _ONE,
        "Delete a subscription; again is no change.",
        (HttpSuccess(204, "There is none now."),),
        (*_WRITE, "SUBSCRIPTION_NOT_FOUND"),
    ),
    _operation(
        "addSubscriptionStreams",
        "POST",
        f"{_ONE}/streams",
        "Link further streams, from their tails on.",
        (HttpSuccess(204, "Linked."),),
        (*_WRITE, *_BODY, "SUBSCRIPTION_NOT_FOUND", "SUBSCRIPTION_LIMIT"),
        record({"streams": _NAMES}),
    ),
    _operation(
        "removeSubscriptionStream",
        "DELETE",
        f"{_ONE}/streams/{{stream}}",
        "Remove the link to a stream.",
        (HttpSuccess(204, "There is no link now."),),
        (*_WRITE, "SUBSCRIPTION_NOT_FOUND"),
        more=(HttpParameter("stream", "path", "The name of the stream; it may contain slashes.", text(1, 1_024)),),
    ),
    _operation(
        "claimWake",
        "POST",
        f"{_ONE}/claim",
        "Take the lease of pending work.",
        (HttpSuccess(200, "The lease and its token.", CLAIMED),),
        (*_WRITE, *_BODY, "SUBSCRIPTION_NOT_FOUND", "ALREADY_CLAIMED", "NO_PENDING_WORK"),
        record({"worker": text(1, 256)}),
    ),
    _lease_call("callback", "Acknowledge from the receiver of a webhook.", _ACKED),
    _lease_call("ack", "Acknowledge streams, and keep or end the lease.", _ACKED),
    _lease_call("release", "End the lease without an acknowledgement.", HttpSuccess(204, "Released.")),
    HttpOperation(
        "webhookKeys",
        "GET",
        f"{_ROOT}/jwks.json",
        "The public keys that sign webhooks.",
        (HttpSuccess(200, "A JSON Web Key Set.", record({"keys": list_of(ANY)}), ("application/jwk-set+json",)),),
        errors(*_SHELL, *_WRITE),
        CONTROL_FORM,
        access=HttpAccess.OPEN,
        has_head=True,
    ),
)
