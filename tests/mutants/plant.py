"""What a plant is: a bug that takes the place of one function; and the ways to make one of a function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

BreakIt = Callable[[Any], Any]
"""Gets a function and returns what takes its place."""


class Plant(NamedTuple):
    """One broken promise, and where it must be noticed."""

    name: str
    """It begins with the area whose promise it breaks."""
    promise: str
    target: str
    """`module:qualname` of the function."""
    break_it: BreakIt
    tests: tuple[str, ...]
    """What must notice, as pytest names it: one failure is enough."""
    one_store: bool = False
    """Whether it is in one store alone, so that a comparison of the stores finds it."""
    also: tuple[tuple[str, BreakIt], ...] = ()
    """Further functions that are replaced: of the other store, or because one alone breaks nothing."""

    @property
    def area(self) -> str:
        """The first word of the name."""
        return self.name.partition("-")[0]

    @property
    def targets(self) -> tuple[tuple[str, BreakIt], ...]:
        """Every function that is replaced."""
        return ((self.target, self.break_it), *self.also)


def the(place: str) -> Any:
    """The object at `module:qualname`. Only a broken function asks for it, when all modules have been imported."""
    module, _, name = place.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def always(value: Any) -> BreakIt:
    """A function that returns this, whatever it is asked."""
    return lambda _: lambda *given, **named: value


def asked(change: Callable[..., tuple[Any, ...]]) -> BreakIt:
    """The function, called with other positional arguments: `change` gets the given ones."""
    return lambda original: lambda *given, **named: original(*change(*given), **named)


def answered(change: Callable[..., Any]) -> BreakIt:
    """The function with another result: `change` gets the result and the positional arguments."""
    return lambda original: lambda *given, **named: change(original(*given, **named), *given)


def instead(function: Callable[..., Any]) -> BreakIt:
    """Another function in its place."""
    return lambda _: function


class Unwritten:
    """A transaction that writes nothing."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def flush(self, changes: Any) -> None:
        """Forget them."""
