"""The HTTP host of streams: carries the wire's values between ASGI and the engine."""

from semel.server.streams.host import PREFIX, StreamsHost

__all__ = ["PREFIX", "StreamsHost"]
