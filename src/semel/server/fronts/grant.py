"""Grants: requests that a front may parse itself, and send as a few values instead of a whole request.

The writer parses and checks the first request of a head shape in full, and grants the shape: the front then recognizes
such heads by their bytes. If the surface has a part in fronts, the front reads key and body of each with the functions
of the surface, and sends the values; otherwise it sends key and body as they are, and the shape in the writer reads
them. The writer checks the credential again and decides. Whatever is unusual is sent as a
whole request, so a front refuses nothing that a surface would have to render.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from semel.server.http.answer import Header
from semel.server.http.head_shapes import HeadShape, RunningExchange

if TYPE_CHECKING:
    from semel.server.fronts.relayed_connection import RelayedConnection
    from semel.server.http.protocol import HttpProtocol


class GrantableShape(HeadShape, ABC):
    """The writer's side: a head shape that can be granted to a front."""

    surface: str
    """The surface whose part in fronts reads such requests."""

    @abstractmethod
    def facts(self) -> tuple[Any, ...]:
        """What the front needs to read and answer such requests; plain values."""

    @abstractmethod
    def admit(self, connection: RelayedConnection, values: Sequence[Any]) -> None:
        """Take a request from a front: settle it after its commit, answer it in full, or ask for the whole of it."""


class FrontConnection(Protocol):
    """A connection as the front's part of a surface sees it."""

    is_stopping: bool

    def submit(self, running: PlainRequest, grant: int, values: tuple[Any, ...]) -> bool:
        """Send a plain request to the writer; False if it cannot be sent now."""

    def write_plain(self, status: bytes, lines: bytes, common: bytes) -> None:
        """Send the answer to the present plain request: its status line, its own header lines, and the constant ones
        with the empty line at the end. The connection adds the date and a request id.
        """


class PlainRequest(RunningExchange, Protocol):
    """A plain request that runs on a connection of a front."""

    grant: Grant
    key: bytes
    body: bytes

    def settle(self, connection: FrontConnection, facts: Sequence[Any]) -> None:
        """Send the answer."""


class Grant(NamedTuple):
    """A granted shape in a front: what is the same in all of its requests."""

    number: int
    length: int
    """The length of the body, in bytes."""
    raw_path: bytes
    headers: list[Header]
    """The headers without the idempotency key."""
    is_keyed: bool
    facts: Sequence[Any]


FrontShapes = Callable[[Grant], HeadShape]
"""The part of a surface in fronts: from a grant to the shape that reads such requests."""


class PassedShape:
    """The shape of requests that a front recognizes and does not read: key and body go to the writer as they are."""

    is_pipelined = False

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self.length = grant.length

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Send a request to the writer, which also renders the answer."""
        front = cast("FrontConnection", connection)
        return front.submit(PassedRequest(self._grant, key, body), self._grant.number, (key, body))


class PassedRequest:
    """A request that a front has passed on by its shape."""

    __slots__ = ("body", "grant", "keep_alive", "key")

    is_pipelined = False

    def __init__(self, grant: Grant, key: bytes, body: bytes) -> None:
        self.grant = grant
        self.key = key
        self.body = body
        self.keep_alive = True

    def lose(self) -> None:
        """The client has disconnected; the end of the connection tells the writer."""

    def settle(self, connection: FrontConnection, facts: Sequence[Any]) -> None:
        """Never called: the writer sends the answer as bytes."""
