"""The gRPC transport: connections, flow control, messages and metadata, without a surface behind it."""
