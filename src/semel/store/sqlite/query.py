"""Runs one statement, and turns the errors of SQLite into errors of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from semel.store.protocol import StoreError


def fetch(connection: apsw.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    """Run a statement; a failure, or a number that no column can hold, is raised as a store error."""
    try:
        return connection.execute(sql, values).fetchall()
    except (apsw.Error, OverflowError, TypeError) as error:
        raise StoreError(sentence(error)) from error


def sentence(error: Exception) -> str:
    """The message of SQLite as one line."""
    return f"SQLite: {type(error).__name__}: {error}"
