"""Transactions from a file of operations, one JSON object a line, whose text is sent as it is.

The same file, portions and identity give the same transactions: each has a key made of one key and its number, or a
sequence counted from the first one. So a second run executes the missing transactions and none twice, within the
server's retention.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from semel.client.errors import InvalidArgumentError, LocalFileError
from semel.client.ledger.operations import BulkTransaction, JsonOperation, LedgerOperation, operations_text


class OperationLine(NamedTuple):
    """A line that is not empty: its number from 1, its operation, and its size in bytes."""

    number: int
    operation: LedgerOperation
    size: int


class FileTransaction(NamedTuple):
    """One transaction of a file: the number of its last line, and the size of its lines in bytes."""

    line: int
    size: int
    transaction: BulkTransaction


def operation_lines(lines: Iterable[bytes]) -> Iterator[OperationLine]:
    """The operations of the lines. Raises `LocalFileError` at a line that is none."""
    for number, line in enumerate(lines, start=1):
        operation = JsonOperation(line.strip(b" \t\r\n"))
        if not operation.text:
            continue
        try:
            operations_text([operation])
        except InvalidArgumentError:
            words = f'Line {number} is not an operation, such as {{"deleteEntity": {{"key": "a"}}}}.'
            raise LocalFileError(words) from None
        yield OperationLine(number, operation, len(line))


def file_transactions(lines: Iterable[bytes], size: int, first: BulkTransaction) -> Iterator[FileTransaction]:
    """Transactions of at most `size` operations; `first` has the client, and the sequence or the key of them all."""
    waiting: list[OperationLine] = []
    count = 0
    for line in operation_lines(lines):
        waiting.append(line)
        if len(waiting) == size:
            yield _transaction(waiting, first, count)
            waiting, count = [], count + 1
    if waiting:
        yield _transaction(waiting, first, count)


def _transaction(lines: list[OperationLine], first: BulkTransaction, count: int) -> FileTransaction:
    key = None if first.key is None else str(uuid.uuid5(uuid.UUID(str(first.key)), str(count + 1)))
    sequence = None if first.sequence is None else first.sequence + count
    operations = tuple(line.operation for line in lines)
    one = BulkTransaction(operations, first.client, sequence, key)
    return FileTransaction(lines[-1].number, sum(line.size for line in lines), one)
