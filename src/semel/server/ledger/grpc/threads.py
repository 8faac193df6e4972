"""Work that would hold up the event loop goes into a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from semel.server.ledger.exchange import APART_BYTES

T = TypeVar("T")


async def apart(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """Do it here, or in a thread if so many bytes are involved."""
    if size <= APART_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
