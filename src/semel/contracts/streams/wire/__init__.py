"""Wire formats of streams: bytes and headers in, answers out; no sockets."""
