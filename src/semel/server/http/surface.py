"""What a surface brings to the HTTP shell: its handler, and how it renders refusals and faults.

The shell does for every surface what is the same for all: the request id, the rule about web origins, OPTIONS, the two
listeners, the audit line of a caller without the right, the count of answers, and a fault's error id.
"""

from __future__ import annotations

from typing import Protocol

from semel.kernel.errors import Problem
from semel.server.http.answer import Answer
from semel.server.http.request import Request


class SurfaceHttp(Protocol):
    """A surface on the listeners."""

    surface: str
    """Its name, in metrics and scopes."""
    allow: bytes
    """The methods in use under its paths, as `OPTIONS` names them."""

    def common(self, request: Request) -> bytes:
        """Header lines of every answer to the request, rendered."""

    def handle(self, request: Request) -> Answer | None:
        """The answer; None when it comes later. May raise what `refuse` renders."""

    def refuse(self, request: Request, error: Exception) -> Answer | None:
        """An error that this surface knows, as its answer; None for a fault."""

    def is_denial(self, error: Exception) -> bool:
        """Whether the error means that a known caller lacks the right, which is put on record."""

    def render(self, request: Request, problem: Problem) -> Answer:
        """What the shell refuses, in the surface's own shape."""

    def fault(self, request: Request, error_id: str) -> Answer:
        """The answer to a fault of ours; the log has the details under the id."""
