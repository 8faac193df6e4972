"""What a fork must not cut in two: a statement of another thread, and the locks that SQLite keeps for its process.

A child that inherits an open SQLite file believes that it holds the locks of its parent, and a fork in the middle of a
statement leaves the child a library that waits for ever. So each object that is known here is asked to be quiet before
a fork, and goes on after it, in both processes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A lock, a condition or a queue that each process makes for itself when it first uses it.

    A child may not use that of its parent, which a thread may hold that is not there. Nor may it make one at the fork:
    a server may replace `threading` behind it, as the gevent worker of gunicorn does, and a lock of the older kind
    would then stop all of its greenlets.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def __call__(self) -> T:
        """The one of this process."""
        found = self._made.get(_generation)
        if found is None:
            found = self._made.setdefault(_generation, self._make())  # of two threads that come here, one is first
        return found

    @property
    def made(self) -> T | None:
        """The one of this process, if it was made."""
        return self._made.get(_generation)


class Forking(Protocol):
    """An object that takes part in forks."""

    def before_fork(self) -> None:
        """Wait for what is running, and begin nothing until one of the others is called."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Begin anew, and leave alone what belongs to the parent."""


_known: weakref.WeakSet[Forking] = weakref.WeakSet()
_generation = 0
"""The number of forks between the first process and this one."""
_quiet: list[Forking] = []
"""The objects that are quiet during a fork."""


def take_part(one: Forking) -> None:
    """Ask an object before and after each fork, as long as it lives."""
    _known.add(one)


def _before() -> None:
    for one in list(_known):
        one.before_fork()
        _quiet.append(one)


def _in_parent() -> None:
    while _quiet:
        _quiet.pop().after_fork_in_parent()


def _in_child() -> None:
    global _generation  # noqa: PLW0603 - a fact of the process
    _generation += 1
    while _quiet:
        _quiet.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
