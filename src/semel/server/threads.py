"""Work that would hold up the event loop goes into a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

APART_BYTES = 64 * 1024
"""Requests above this are read and answered in a thread, so that others do not wait for them."""


async def apart(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """Do it here, or in a thread if so many bytes are involved."""
    if size <= APART_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
