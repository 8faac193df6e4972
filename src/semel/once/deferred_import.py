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
