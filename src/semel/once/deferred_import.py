"""Modules of the standard library that are imported with their first use: a program that blocks needs no asyncio."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class DeferredModule:
    """Stands for a module until one of its members is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, member: str) -> Any:
        return getattr(import_module(self._name), member)
