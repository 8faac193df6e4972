"""The tables of keys and values.

Look-ups: a value by its name (KV_VALUE), the receipt of an idempotency key by name and key (KV_RECEIPT).
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.table import Table


class KvValueRow(NamedTuple):
    """A value and its version, which counts the writes to the name."""

    name: bytes
    version: int
    value: bytes


class KvReceiptRow(NamedTuple):
    """The receipt of a keyed write: its fingerprint, and the version that was returned."""

    name: bytes
    key: bytes
    fingerprint: bytes
    expires_at: int
    version: int


KV_VALUE = Table("kv_value", KvValueRow, key=1, bulky=True)
KV_RECEIPT = Table("kv_receipt", KvReceiptRow, key=2, generational=True)

TABLES = (KV_VALUE, KV_RECEIPT)
