"""Requests of clients in any dialect, and the errors that refuse them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from semel.contracts.events.commands import Submit
from semel.kernel.errors import REGISTRY

VERSION = "1.0"
PROFILES = ("canonical", "compatibility")

Allowed = Callable[[str], bool]
"""Whether the caller may write to, or read from, a partition."""


class WireError(Exception):
    """A request is refused. `closes` says whether the connection ends with it."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        closes: bool = False,
        close_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details or {}
        self.closes = closes
        self.close_code = REGISTRY[code].websocket if close_code is None else close_code


def bad_request(message: str, **details: Any) -> WireError:
    """The request cannot be understood; the connection stays."""
    return WireError("bad_request", message, details)


class Identity(NamedTuple):
    """An authenticated client, and its rights."""

    client_id: str
    may_write: Allowed
    may_read: Allowed
    users: frozenset[str] | None = None
    """Names under which it may act as a user; None is any."""


class Connect(NamedTuple):
    """The first request of a connection."""

    token: str
    client_id: str
    project: str | None = None
    instance: str = ""
    """The instance of a client that has several connections; the newest of the same name stays."""


class Sync(NamedTuple):
    """History of some partitions after a cursor; `subscription` replaces what the connection is sent live."""

    names: tuple[str, ...]
    since: int
    limit: int
    subscription: tuple[str, ...] | None
    log_epoch: int | None = None
    """The epoch that the cursor is of, if the client says."""


class Heartbeat(NamedTuple):
    """A heartbeat."""


class Disconnect(NamedTuple):
    """The client closes its session."""


Request = Connect | Submit | Sync | Heartbeat | Disconnect
