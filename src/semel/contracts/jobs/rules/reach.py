"""Authorization: which queues a limited caller may reach."""

from __future__ import annotations

Reach = tuple[tuple[bytes, bool], ...]
"""Queues, each a name or (True) a prefix."""


def reaches(reach: Reach, queue: bytes) -> bool:
    """Whether one of them is this queue."""
    return any(queue.startswith(name) if is_prefix else queue == name for name, is_prefix in reach)
