"""The HTTP host of streams: carries the wire's values between ASGI and the engine."""
