"""What a row of the table of calls is: what it asks for, what a repetition gives, how often it has taken effect."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from semel.client import AsyncClient, WriteIdentity
from semel.client.identity import NamedCall

Told = Callable[[Any], Any]
State = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Play:
    """One call, with names of its own, on a server where it can be made."""

    act: Callable[[Any], Awaitable[Any]]
    """Makes the call, with an asynchronous client or a blocking one behind coroutines."""
    identity: WriteIdentity | None = None
    """Its identity; None if it has none."""
    state: State | None = None
    """What of its effect is seen by another client."""
    done: Any = 1
    """The state when it has taken effect once."""
    told: Told = lambda found: None
    """What the first answer and each repetition say alike."""
    replayed: Told | None = None
    """Whether an answer says that it is a repetition."""
    key: str | None = None
    """The key that the error of an unknown outcome names."""
    again: type[Exception] | None = None
    """The error of the same call once more, after its effect: what it ended is gone."""


class Call(NamedTuple):
    """A row of the table."""

    prepare: Callable[[AsyncClient], Awaitable[Play]]
    on: str
    """A pattern of the requests on which faults are played."""
    is_read: bool = False
    """It changes nothing."""
    is_bare: bool = False
    """It reads no more of an answer than its status, so that any answer of 200 is one."""
    is_loose: bool = False
    """It wants a JSON object, and none of its members."""
    is_looking: bool = False
    """It asks for the state before it is repeated, so that the server, and not the client, says what is next."""
    is_listed: bool = False
    """Its error says for each of many that there was no answer."""
    is_single: bool = False
    """It has no identity, so that it is not repeated after an attempt that may have taken effect."""


CALLS: dict[str, Call] = {}


def row(on: str, **options: bool) -> Callable[[Callable[[AsyncClient], Awaitable[Play]]], None]:
    """Put a call into the table."""

    def put(prepare: Callable[[AsyncClient], Awaitable[Play]]) -> None:
        CALLS[prepare.__name__] = Call(prepare, on, **options)

    return put


async def count(found: AsyncIterable[Any]) -> int:
    """How many there are."""
    return len([one async for one in found])


def named(method: str, path: str) -> NamedCall:
    """The identity of a call that its name makes repeatable."""
    return NamedCall(method, path)


def is_dedup(found: Any) -> Any:
    """What jobs say of a repetition."""
    return found.dedup


def is_replayed(found: Any) -> Any:
    """What the other surfaces say."""
    return found.replayed
