"""The host of events: WebSocket connections, plain HTTP, and the feed that live readers hang on."""
