"""What the tests of the ledger's JSON share: expecting a refusal, and requests as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields

NO_FIELDS = HeaderFields([])
KEY = bytes(range(16))
KEY_TEXT = "AAECAwQFBgcICQoLDA0ODw=="
KEY_UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@contextmanager
def refused(field: str, code: str = "invalid_argument") -> Iterator[None]:
    """What is called inside must be refused, and name this field."""
    with pytest.raises(Refused) as caught:
        yield
    refusal = caught.value.refusal
    assert refusal.name == code, refusal
    assert refusal.facts.get("field", "") == field, refusal
    assert refusal.message.endswith("."), refusal


def keyed(*values: str) -> HeaderFields:
    """Header fields with these idempotency keys."""
    return HeaderFields([(b"idempotency-key", value.encode()) for value in values])


def raw(body: Any) -> bytes:
    """A body as bytes; text and bytes stand for themselves."""
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
