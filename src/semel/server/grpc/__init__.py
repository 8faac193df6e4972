"""The gRPC transport: HTTP/2 connections, calls, messages, statuses, health and reflection. It imports no surface."""
