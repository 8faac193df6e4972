"""Descriptors of the services that every gRPC server has: health and reflection."""
