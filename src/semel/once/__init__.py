"""Idempotency inside of your own program: three lines, no server.

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

Importing this imports the standard library alone; a driver is imported with the first connection of its kind, and the
middleware and the outbox when they are first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semel.once.attempt import Attempt
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
    StoreUnavailable,
    TableMissing,
    TransactionEnded,
    UnsupportedConnection,
)
from semel.once.functions import Inspection, Once, OnceFunction, current_key
from semel.once.table import ddl
from semel.once.transaction import Transaction, transaction

if TYPE_CHECKING:
    from semel.once.asgi import Middleware
    from semel.once.courier import Flushed
    from semel.once.letter_table import ddl as outbox_ddl
    from semel.once.letters import EnvSecret, LetterState, LetterStatus
    from semel.once.migration import migrate
    from semel.once.outbox import Outbox
    from semel.once.postbox import TransactionOutbox
    from semel.once.posts import Posted
    from semel.once.wsgi import WsgiMiddleware

_LATER = {
    "EnvSecret": "semel.once.letters",
    "Flushed": "semel.once.courier",
    "LetterState": "semel.once.letters",
    "LetterStatus": "semel.once.letters",
    "Middleware": "semel.once.asgi",
    "migrate": "semel.once.migration",
    "Outbox": "semel.once.outbox",
    "Posted": "semel.once.posts",
    "TransactionOutbox": "semel.once.postbox",
    "WsgiMiddleware": "semel.once.wsgi",
}
"""The module of each name that is imported when it is first used."""


if not TYPE_CHECKING:  # a checker of types reads the imports above, and minds a name that is not there

    def __getattr__(name: str) -> Any:
        if name == "outbox_ddl":
            return import_module("semel.once.letter_table").ddl
        if name not in _LATER:
            raise AttributeError(f"semel.once has no {name}.")
        return getattr(import_module(_LATER[name]), name)


__all__ = [
    "Attempt",
    "Codec",
    "EnvSecret",
    "Fenced",
    "Flushed",
    "Happened",
    "InFlight",
    "Inspection",
    "InvalidKey",
    "JsonCodec",
    "KeyMismatch",
    "LetterState",
    "LetterStatus",
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
    "StoreUnavailable",
    "TableMissing",
    "Transaction",
    "TransactionEnded",
    "TransactionOutbox",
    "UnsupportedConnection",
    "WsgiMiddleware",
    "current_key",
    "ddl",
    "migrate",
    "outbox_ddl",
    "transaction",
]
