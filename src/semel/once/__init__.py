"""Idempotency inside your own program: three lines, no server.

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

This package imports only the standard library. A driver is imported with the first connection of its kind, the
middleware and the outbox when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semel.once.calls import Happened
from semel.once.codec import Codec, JsonCodec
from semel.once.errors import (
    Fenced,
    InFlight,
    InvalidKey,
    KeyMismatch,
    NotInTransaction,
    OnceError,
    OutboxFull,
    OutcomeUnknown,
    ResultError,
    RunAgain,
    SecondBlock,
    StoreBusy,
    StoreUnavailable,
    TableMismatch,
    TableMissing,
    TransactionEnded,
    UnsupportedConnection,
)
from semel.once.functions import Inspection, Once, OnceFunction
from semel.once.runs import CurrentCall, current_call, current_key
from semel.once.table import ddl
from semel.once.transaction import AsyncTransaction, Attempt, Transaction, transaction

if TYPE_CHECKING:
    from semel.once.asgi import Middleware
    from semel.once.dispatcher import Flushed
    from semel.once.message_table import ddl as outbox_ddl
    from semel.once.messages import EnvSecret, MessageState, MessageStatus
    from semel.once.outbox import Outbox
    from semel.once.outbox_store import Posted, TransactionOutbox
    from semel.once.transaction import migrate
    from semel.once.wsgi import WsgiMiddleware

_LATER = {
    "EnvSecret": "semel.once.messages",
    "Flushed": "semel.once.dispatcher",
    "MessageState": "semel.once.messages",
    "MessageStatus": "semel.once.messages",
    "Middleware": "semel.once.asgi",
    "migrate": "semel.once.transaction",
    "Outbox": "semel.once.outbox",
    "Posted": "semel.once.outbox_store",
    "TransactionOutbox": "semel.once.outbox_store",
    "WsgiMiddleware": "semel.once.wsgi",
}
"""The module of each name that is imported when it is first used."""


if not TYPE_CHECKING:  # a type checker reads the imports above, and reports names that do not exist

    def __getattr__(name: str) -> Any:
        if name == "outbox_ddl":
            return import_module("semel.once.message_table").ddl
        if name not in _LATER:
            raise AttributeError(f"module 'semel.once' has no attribute {name!r}.")
        return getattr(import_module(_LATER[name]), name)


__all__ = [
    "AsyncTransaction",
    "Attempt",
    "Codec",
    "CurrentCall",
    "EnvSecret",
    "Fenced",
    "Flushed",
    "Happened",
    "InFlight",
    "Inspection",
    "InvalidKey",
    "JsonCodec",
    "KeyMismatch",
    "MessageState",
    "MessageStatus",
    "Middleware",
    "NotInTransaction",
    "Once",
    "OnceError",
    "OnceFunction",
    "Outbox",
    "OutboxFull",
    "OutcomeUnknown",
    "Posted",
    "ResultError",
    "RunAgain",
    "SecondBlock",
    "StoreBusy",
    "StoreUnavailable",
    "TableMismatch",
    "TableMissing",
    "Transaction",
    "TransactionEnded",
    "TransactionOutbox",
    "UnsupportedConnection",
    "WsgiMiddleware",
    "current_call",
    "current_key",
    "ddl",
    "migrate",
    "outbox_ddl",
    "transaction",
]
