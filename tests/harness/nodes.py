"""Several servers over one store, as a client behind a load balancer sees them: one address, and any of the nodes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.harness.server import HOST, RunningServer


class Nodes:
    """Starts, kills and stops like one `RunningServer`; each look at `port` is the next node's."""

    def __init__(self, data: Path, count: int, *, env: Mapping[str, str], grpc: bool = False) -> None:
        folders = [data.with_name(f"{data.name}-{number}") for number in range(count)]
        self.each = [RunningServer(folder, env=env, grpc=grpc) for folder in folders]
        self._turns = itertools.cycle(self.each)

    @property
    def url(self) -> str:
        """The address that clients are given: the first node's."""
        return self.each[0].url

    @property
    def port(self) -> int:
        """The next node's port."""
        return next(self._turns).port

    @property
    def outputs(self) -> Sequence[Path]:
        """Where the nodes write."""
        return [node.output for node in self.each]

    def transport(self) -> httpx.BaseTransport:
        """Sends each request to the next node."""
        return _Balanced(self)

    def start(self) -> None:
        for node in self.each:
            node.start()

    def kill(self) -> None:
        for node in self.each:
            node.kill()

    def restart(self) -> None:
        for node in self.each:
            node.restart()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.each:
            node.__exit__(kind, error, trace)


class _Balanced(httpx.BaseTransport):
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._inside = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        # Only where it goes changes; the Host field stays what the client meant.
        request.url = request.url.copy_with(host=HOST, port=self._nodes.port)
        return self._inside.handle_request(request)

    def close(self) -> None:
        self._inside.close()
