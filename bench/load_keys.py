"""The body and the keys of the writes that are measured."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

BODY = json.dumps({"event": "clicked", "user": "u-123456", "pad": "x" * 150}).encode()


def uuid_text(number: int) -> bytes:
    """A UUID of version 4 with bits of this number."""
    text = b"%032x" % number
    return b"%s-%s-4%s-8%s-%s" % (text[:8], text[8:12], text[13:16], text[17:20], text[20:])


def ordered_key() -> bytes:
    """A UUID that begins with the time, as Semel's own client makes them."""
    return uuid_text(time.time_ns() // 1_000_000 << 80 | random.getrandbits(80))


def random_key() -> bytes:
    """A UUID of chance alone, as most clients make them."""
    return uuid_text(random.getrandbits(128))


def repeated_key() -> bytes:
    """The same key every time: every answer but the first is a replay."""
    return b"00000000-0000-4000-8000-000000000001"


KEYS: dict[str, Callable[[], bytes] | None] = {
    "none": None,
    "ordered": ordered_key,
    "random": random_key,
    "repeated": repeated_key,
}
