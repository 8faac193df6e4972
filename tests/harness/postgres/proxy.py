"""Stands between a node and its database, and fails where a network fails."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from tests.harness.server import HOST

_DONE = b"Z\x00\x00\x00\x05"
"""How the server ends an answer: it is ready for the next question. One more byte follows."""
_COMMITTED = b"COMMIT\x00"
"""Part of the answer to a COMMIT."""
_NO_TLS = b"N"
"""The whole answer to the first question of a connection, which is for encryption."""


class Proxy:
    """Passes bytes on, until it is told what to do with the next that the node sends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._fault = ""
        self._guard = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        self._open: set[socket.socket] = set()
        self._stopped = False
        self._is_mute = False
        self._is_silent = False
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

    def leave_after(self) -> None:
        """The next bytes from a node reach the server, and the node's side ends; the server does not notice."""
        self._fault = "leave"

    def mute(self, is_mute: bool = True) -> None:
        """What nodes ask reaches the server, and no answer to a COMMIT reaches a node; from now on, or no longer."""
        self._is_mute = is_mute

    def silence(self, is_silent: bool = True) -> None:
        """Nothing that the server says arrives, from now on; connections of this time stay deaf when it is over."""
        self._is_silent = is_silent

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
            try:
                server = socket.create_connection((HOST, self._target))
            except OSError:
                node.close()  # nobody is there, and so nobody is here
                continue
            with self._guard:
                self._open |= {node, server}
            threading.Thread(target=self._pass_on, args=(node, server), daemon=True).start()

    def _pass_on(self, node: socket.socket, server: socket.socket) -> None:
        asked_last = threading.Event()
        answers = threading.Thread(target=self._pump_answers, args=(server, node, asked_last), daemon=True)
        answers.start()
        self._pump_questions(node, server, asked_last)
        answers.join()
        with self._guard:
            self._open -= {node, server}
        node.close()
        server.close()

    def _pump_questions(self, node: socket.socket, server: socket.socket, asked_last: threading.Event) -> None:
        """`asked_last` is set before a question whose answer nobody gets: a fault befalls one connection."""
        with contextlib.suppress(OSError):
            while data := node.recv(65_536):
                fault = self._take_fault()
                if fault == "before":
                    self.cuts += 1
                    break
                if fault in ("after", "leave"):
                    asked_last.set()
                server.sendall(data)
                if fault == "leave":
                    _shut(node)
                    return
        _shut(node)
        _shut(server)

    def _pump_answers(self, server: socket.socket, node: socket.socket, asked_last: threading.Event) -> None:
        end, is_deaf = b"", False
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                is_deaf = is_deaf or self._is_silent or (self._is_mute and _COMMITTED in data)
                if is_deaf:
                    continue
                if not asked_last.is_set():
                    node.sendall(data)
                    continue
                end = (end + data)[-len(_DONE) - 1 :]
                if end == _NO_TLS or end[:-1] == _DONE:
                    self.cuts += 1
                    break
        _shut(server)
        _shut(node)

    def _take_fault(self) -> str:
        """What befalls the bytes that have just come from a node; an order is carried out once."""
        with self._guard:
            fault = self._fault
            if fault in ("before", "after", "leave"):
                self._fault = ""
            return fault


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
