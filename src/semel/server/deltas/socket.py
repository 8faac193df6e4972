"""The WebSocket of deltas: a client is authenticated in the HTTP handshake."""

from __future__ import annotations

from websockets.http11 import Request, Response

from semel.kernel.errors import Problem
from semel.server.deltas.conversation import Conversation, Visitor
from semel.server.deltas.door import Door
from semel.server.origin_policy import REFUSED, Provenance
from semel.server.websocket import Talk, WebSocket


class DeltaSocket(WebSocket):
    """One WebSocket connection."""

    def __init__(self, door: Door) -> None:
        self._door = door
        settings = door.desk.settings
        most_bytes = settings.deltas_max_body_bytes + 1  # the byte in front says what follows
        policy = door.desk.context.settings.origin_policy
        super().__init__(most_bytes, most_bytes, settings.deltas_live_bytes, policy)
        self._visitor: Visitor | None = None
        self._conversation: Conversation | None = None

    def reject(self, request: Request, problem: Problem, provenance: Provenance) -> Response:
        """Say it as everything else is said here."""
        where = {"path": request.path.partition("?")[0], "remote_addr": self.remote}
        self._door.desk.context.audit.note(REFUSED, {**provenance.shown, **where})
        return self._door.reject(request, problem)

    def judge(self, request: Request) -> Response | None:
        """Let it in, or say why not."""
        found = self._door.judge(request, self.remote)
        if isinstance(found, Response):
            return found
        self._visitor = found
        return None

    def refuse(self, request: Request, response: Response) -> Response:
        """Say it as everything else is said here."""
        return self._door.refuse(request)

    def begin(self) -> Talk:
        """Talk as deltas do."""
        assert self._visitor is not None
        self._conversation = Conversation(self._door, self._visitor, self)
        return self._conversation

    def ponged(self, payload: bytes) -> None:
        """The client has what was sent before a ping."""
        if self._conversation is not None:
            self._conversation.ponged(payload)

    def unfinished(self, size: int) -> None:
        """Note how many bytes of an incomplete message have arrived."""
        if self._conversation is not None:
            self._conversation.unfinished(size)
