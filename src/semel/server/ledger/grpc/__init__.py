"""The ledger over gRPC, on a port of its own, if `semel[grpc]` is installed.

The names below import nothing of it, so that a server without these packages starts.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["is_installed"]

_PARTS = ("h2", "google", "google.protobuf", "semel.server.ledger.proto.ledger_pb2")
"""A package comes before its submodules: finding a submodule imports the package."""


def is_installed() -> bool:
    """Whether what gRPC needs besides is here: the packages, and the code that the build makes."""
    return all(find_spec(name) is not None for name in _PARTS)
