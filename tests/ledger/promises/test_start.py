"""A server that says over HTTP that it is ready takes calls over gRPC, too."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.harness.server import HOST, RunningServer, ServerFailedError


def test_a_server_without_its_grpc_port_is_never_ready(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:"}, grpc=True)
    with socket.socket() as taken:
        taken.bind((HOST, server.grpc_port))
        taken.listen()
        with pytest.raises(ServerFailedError, match="--ledger-grpc-port"), server:
            pass
