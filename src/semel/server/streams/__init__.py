"""Streams over HTTP: routes, reads, writes and live delivery."""

from semel.server.streams.host import PREFIX, StreamsHost

__all__ = ["PREFIX", "StreamsHost"]
