"""Equality of two submissions under one id: equal RFC 8785 bytes of {"event": ..., "partitions": ...}.

Nothing else counts: not the client, not the connection, not the time. The digest is made once, when an event is
submitted, and stored with its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from semel.kernel.canonical import Integers, Surrogates, canonical_outlined
from semel.kernel.fingerprint import fingerprint
from semel.kernel.json_print import dump
from semel.kernel.json_text import refuse_deep


def digest(partitions: Sequence[str], event: Any) -> bytes:
    """SHA-256 over normalized partitions and an event that a strict parser has made."""
    return digest_of(dump(partitions), event, is_proved=False)


def digest_of(partitions: bytes, event: Any, *, is_proved: bool) -> bytes:
    """The same for partitions that are printed already, and an event that may be proved to print canonically."""
    printed = orjson.dumps(event, option=orjson.OPT_SORT_KEYS) if is_proved else _canonical(event)
    return fingerprint(b'{"event":%s,"partitions":%s}' % (printed, partitions))


def _canonical(event: Any) -> bytes:
    text = canonical_outlined(event, Integers.REFUSE, Surrogates.REFUSE)
    refuse_deep(text)  # the message around it may be nested deeper than an event
    return text
