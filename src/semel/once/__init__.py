"""Idempotency inside of your own program: three lines, no server.

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

Importing this imports the standard library alone; a driver is imported with the first connection of its kind.
"""

from semel.once.asgi import Middleware
from semel.once.attempt import Attempt
from semel.once.calls import Happened
from semel.once.codec import Codec, JsonCodec
from semel.once.courier import Flushed
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
from semel.once.letter_table import ddl as outbox_ddl
from semel.once.letters import EnvSecret, LetterState, LetterStatus
from semel.once.outbox import Outbox
from semel.once.postbox import TransactionOutbox
from semel.once.posts import Posted
from semel.once.table import ddl
from semel.once.transaction import Transaction, transaction

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
    "current_key",
    "ddl",
    "outbox_ddl",
    "transaction",
]
