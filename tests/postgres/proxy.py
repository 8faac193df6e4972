"""Stands between a node and its database, and fails where a network fails."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from tests.running import HOST

_DONE = b"Z\x00\x00\x00\x05"
"""How the server ends an answer: it is ready for the next question."""


class Proxy:
    """Passes bytes on, until it is told what to do with the next that the node sends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._fault = ""
        self._guard = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        self._open: set[socket.socket] = set()
        self._stopped = False
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        """How many connections were cut on demand."""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_before(self) -> None:
        """The next bytes from a node do not reach the server; the connection ends."""
        self._fault = "before"

    def cut_after(self) -> None:
        """The next bytes from a node reach the server; its answer reaches nobody, and the connection ends."""
        self._fault = "after"

    def cut_all(self, *, and_stay_away: bool) -> None:
        """End every connection; stay away: let nobody in until `come_back`."""
        self._fault = "away" if and_stay_away else ""
        with self._guard:
            for one in self._open:
                _shut(one)

    def come_back(self) -> None:
        """Pass everything on again."""
        self._fault = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self.cut_all(and_stay_away=True)
        _shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped:
            try:
                node, _ = self._listener.accept()
            except OSError:
                return
            if self._fault == "away":
                node.close()
                continue
            server = socket.create_connection((HOST, self._target))
            with self._guard:
                self._open |= {node, server}
            threading.Thread(target=self._pass_on, args=(node, server), daemon=True).start()

    def _pass_on(self, node: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=self._pump, args=(server, node, False), daemon=True)
        answers.start()
        self._pump(node, server, True)
        answers.join()
        with self._guard:
            self._open -= {node, server}
        node.close()
        server.close()

    def _pump(self, source: socket.socket, target: socket.socket, is_from_node: bool) -> None:
        is_swallowing = False
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if is_from_node and self._fault == "before":
                    self._cut()
                    break
                is_swallowing = is_swallowing or (not is_from_node and self._fault == "after")
                if not is_swallowing:
                    target.sendall(data)
                elif data[:-1].endswith(_DONE):
                    self._cut()
                    break
        _shut(source)
        _shut(target)

    def _cut(self) -> None:
        self._fault = ""
        self.cuts += 1


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
