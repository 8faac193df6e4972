"""The ledger over gRPC, on a port of its own; available when `semel[grpc]` is installed.

This module imports nothing of it, so that a server without these packages starts.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["is_installed"]

_PARTS = ("h2", "google", "google.protobuf", "semel.surfaces.ledger.proto.ledger_pb2")
"""A package comes before its submodules: finding a submodule imports the package."""


def is_installed() -> bool:
    """Whether the packages that gRPC needs and the generated code are installed."""
    return all(find_spec(name) is not None for name in _PARTS)
