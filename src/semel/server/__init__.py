"""The server process: HTTP, WebSocket and gRPC listeners, authentication, audit log, health and metrics."""
