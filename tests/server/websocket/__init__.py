"""The WebSocket transport and the one shape of a conversation."""
