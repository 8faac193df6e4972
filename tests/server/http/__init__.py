"""The HTTP host: framing, connections, limits, origins, TLS."""
