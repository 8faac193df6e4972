"""Names that the tests of the SDK share."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

TOKEN = "a-token-that-no-message-shows"
HMAC_KEY = "a-key-that-signs-results"
DELTAS_SECRET = "a-secret-of-thirty-two-bytes-or-so"
PATIENCE_SECONDS = 60.0

_numbers = itertools.count(1)


def fresh(prefix: str) -> str:
    """A name that no other test has: kinds keep the jobs of tests apart."""
    return f"{prefix}-{next(_numbers)}"


async def until(is_so: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        answer = is_so()
        if answer if isinstance(answer, bool) else await answer:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to pass")
