"""The gRPC transport: HTTP/2 connections, calls, messages, statuses and health. It imports no surface."""
