"""Messages of a WebSocket whose handshake carried a sampled `traceparent`: a span for each.

A span ends when its message is handled: its commit is on disk, and its task has ended. A message that cannot be handled
yet, because others come first or the engine is full, has no span until it is handled.
"""

from __future__ import annotations

from semel.kernel.header_fields import HeaderFields
from semel.server.context import Context
from semel.server.ops.traces import CURRENT, ServerTracing
from semel.server.websocket.conversation import Conversation


class TracedMessages:
    """The messages of one connection. It stands in front of `Conversation.take`."""

    def __init__(
        self, tracing: ServerTracing, conversation: Conversation, fields: HeaderFields, context: Context
    ) -> None:
        self._tracing = tracing
        self._conversation = conversation
        self._fields = fields
        self._namespace = context.namespace
        self._take = conversation.take

    def take(self) -> bool:
        """Handle the first message of the inbox, or start to; the span of one that has to wait is dropped."""
        conversation = self._conversation
        attributes = {"network.protocol.name": "websocket"}
        surface = conversation.surface
        name = f"semel {surface} message"
        traced = self._tracing.begin(self._fields, name, surface, attributes, self._namespace)
        if traced is None:
            return self._take()
        task = conversation.task
        token = CURRENT.set(traced)
        try:
            is_taken = self._take()
        finally:
            CURRENT.reset(token)
        if is_taken:
            if conversation.task is not None and conversation.task is not task:
                traced.hold()
                conversation.task.add_done_callback(lambda done: traced.release())
            traced.release()
        return is_taken


def trace_messages(tracing: ServerTracing, conversation: Conversation, fields: HeaderFields, context: Context) -> None:
    """Give the messages of a connection spans, if its handshake is sampled."""
    if tracing.is_sampled(fields):
        traced = TracedMessages(tracing, conversation, fields, context)
        conversation.take = traced.take  # type: ignore[method-assign]
