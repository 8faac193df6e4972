"""The OpenAPI document: complete, valid, and true of a running server."""
