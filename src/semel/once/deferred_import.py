"""Standard library modules that are imported on first use: a synchronous program needs no asyncio."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class DeferredModule:
    """Imports its module when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, member: str) -> Any:
        return getattr(import_module(self._name), member)


def warn(text: str, *facts: object) -> None:
    """Log a warning of this package."""
    import logging  # noqa: PLC0415 - most programs that import this package log nothing

    logging.getLogger("semel.once").warning(text, *facts)
