"""A line to a server that counts what passes: requests by name, and bytes on their way to the client."""

from __future__ import annotations

from tests.client.line import CUT_REQUEST, Fault, Line


class Wiretap(Line):
    """Without WebSockets it is like a proxy that does not know of them: it ends the connection."""

    def __init__(self, port: int, *, has_websockets: bool = True) -> None:
        super().__init__(port)
        self._has_websockets = has_websockets

    @property
    def requests(self) -> list[str]:
        """Method and last part of the path of each request."""
        told = (one.partition(" ") for one in self.targets)
        return [f"{method} {target.partition('?')[0].rpartition('/')[2]}" for method, _, target in told]

    def count(self, request: str) -> int:
        """How many such requests there were."""
        return self.requests.count(request)

    def due(self, request: bytes) -> Fault:
        """The end of the connection, for a handshake that is not known."""
        found = super().due(request)
        return CUT_REQUEST if self.requests[-1] == "GET ws" and not self._has_websockets else found
