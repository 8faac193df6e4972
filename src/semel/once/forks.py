"""What a process opens for itself: after a fork the child opens its own, and leaves that of its parent alone.

Two processes that use one connection read each other's answers, and SQLite forbids it. A server that loads its
application before it forks its workers has such a store in every one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_parents: list[Any] = []
"""Kept open: closing one here would end it for the parent as well. One for each fork in the line of a process."""


class PerProcess(Generic[T]):
    """A thing that is opened anew in a child."""

    def __init__(self, make: Callable[[], T], *, is_copied: bool = False) -> None:
        self._make = make
        self._is_copied = is_copied
        """Whether a fork copies it, as it does with memory."""
        self._made = make()
        self._process = os.getpid()

    def get(self) -> T:
        """That of this process; opened by the first call after a fork."""
        process = os.getpid()
        if process != self._process and not self._is_copied:
            _parents.append(self._made)
            self._made = self._make()
            self._process = process
        return self._made

    @property
    def is_parents(self) -> bool:
        """Whether this process has not opened one: there is nothing of its own to close."""
        return self._process != os.getpid() and not self._is_copied
