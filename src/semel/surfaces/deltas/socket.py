"""The WebSocket of deltas: one connection, authorized in its handshake."""

from __future__ import annotations

from websockets.http11 import Request, Response

from semel.kernel.errors import Problem
from semel.server.http.cors import REFUSED, Provenance
from semel.server.websocket.transport import Talk, WebSocket
from semel.surfaces.deltas.conversation import AcceptedClient, DeltaConversation
from semel.surfaces.deltas.handshake import DeltaHandshake


class DeltaSocket(WebSocket):
    """One WebSocket connection."""

    def __init__(self, handshake: DeltaHandshake) -> None:
        self._handshake = handshake
        settings = handshake.service.settings
        most_bytes = settings.deltas_max_body_bytes + 1  # the byte in front says what follows
        policy = handshake.service.context.settings.origin_policy
        super().__init__(most_bytes, most_bytes, settings.deltas_live_bytes, policy)
        self._accepted: AcceptedClient | None = None
        self._conversation: DeltaConversation | None = None

    def reject(self, request: Request, problem: Problem, provenance: Provenance) -> Response:
        """Say it as everything else is said here."""
        where = {"path": request.path.partition("?")[0], "remote_addr": self.remote}
        self._handshake.service.context.audit.note(REFUSED, {**provenance.shown, **where})
        return self._handshake.reject(request, problem)

    def judge(self, request: Request) -> Response | None:
        """Let it in, or say why not."""
        found = self._handshake.judge(request, self.remote)
        if isinstance(found, Response):
            return found
        self._accepted = found
        return None

    def refuse(self, request: Request, response: Response) -> Response:
        """Say it as everything else is said here."""
        return self._handshake.refuse(request)

    def begin(self) -> Talk:
        """Talk as deltas do."""
        assert self._accepted is not None
        self._conversation = DeltaConversation(self._handshake, self._accepted, self)
        return self._conversation

    def ponged(self, payload: bytes) -> None:
        """The client has what was sent before a ping."""
        if self._conversation is not None:
            self._conversation.ponged(payload)

    def unfinished(self, size: int) -> None:
        """Note how many bytes of an incomplete message have arrived."""
        if self._conversation is not None:
            self._conversation.unfinished(size)
