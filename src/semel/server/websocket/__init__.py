"""WebSocket: the transport of every surface that uses WebSockets."""
