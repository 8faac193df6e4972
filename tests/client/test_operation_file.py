"""A file of operations becomes the same transactions in every run."""

from __future__ import annotations

import uuid

import pytest

from semel.client.errors import LocalFileError
from semel.client.ledger.operation_file import file_transactions, operation_lines
from semel.client.ledger.operations import BulkTransaction, JsonOperation

LINES = [b'{"deleteEntity": {"key": "a"}}\n', b"\n", b'  {"deleteEntity": {"key": "b"}}\r\n', b'{"deleteEntity": {}}']
FIRST = BulkTransaction((), "app", None, "00000000-0000-4000-8000-000000000001")


def test_portions_have_keys_made_of_one_key_and_their_number() -> None:
    found = list(file_transactions(LINES, 2, FIRST))
    assert found == list(file_transactions(iter(LINES), 2, FIRST))
    assert [(one.line, one.size) for one in found] == [(3, len(LINES[0]) + len(LINES[2])), (4, len(LINES[3]))]
    keys = [str(uuid.uuid5(uuid.UUID(str(FIRST.key)), number)) for number in ("1", "2")]
    assert [(one.transaction.key, one.transaction.sequence) for one in found] == [(keys[0], None), (keys[1], None)]
    assert found[1].transaction.operations == (JsonOperation(LINES[3]),)
    assert list(file_transactions([b"\n"], 2, FIRST)) == []


def test_portions_have_sequences_from_the_first_on() -> None:
    found = file_transactions(LINES, 1, BulkTransaction((), "app", 7))
    assert [(one.transaction.sequence, one.transaction.key) for one in found] == [(7, None), (8, None), (9, None)]


@pytest.mark.parametrize("line", [b"[]", b"1", b"{", b'"a"', b"{}{}"])
def test_a_line_that_is_no_operation_is_named(line: bytes) -> None:
    with pytest.raises(LocalFileError, match="Line 2 is not an operation"):
        list(operation_lines([LINES[0], line]))
