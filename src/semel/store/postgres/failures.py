"""Error mapping: what an error of PostgreSQL means for the caller (not stored, unknown, retry)."""

from __future__ import annotations

import struct

from semel.store.postgres.wire import LostError, RefusedError
from semel.store.protocol import StoreError, StoreHeldError, TryAgainError

UNFIT = (struct.error, OverflowError, TypeError, AttributeError)
"""Errors of the encoding for a value that does not fit its column."""

BROKEN = (LostError, RefusedError)
"""Errors of a failed exchange."""

_AGAIN = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "22012",  # a row that was to be deleted has just changed; see statements
    }
)
_HELD = frozenset(
    {
        "55P03",  # a lock was held for longer than we wait
        "57014",  # or several, one after the other
    }
)


def meaning(error: Exception) -> StoreError:
    """The error of a transaction whose commit was not sent, or was refused: nothing was stored."""
    if isinstance(error, LostError):
        return TryAgainError(sentence(error))
    if isinstance(error, RefusedError):
        if error.sqlstate in _HELD:
            return StoreHeldError("PostgreSQL: other transactions held the locks for too long.")
        return (TryAgainError if error.sqlstate in _AGAIN else StoreError)(sentence(error))
    return StoreError(f"A value does not fit its column: {error}")


def sentence(error: Exception) -> str:
    """One line, whatever the driver made of it; it knows no passwords."""
    return f"PostgreSQL: {' '.join(str(error).split()) or type(error).__name__}"
