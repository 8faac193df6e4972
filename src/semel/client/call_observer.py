"""What watches the calls of a client, such as telemetry. Without an observer a call does nothing for it.

A call is one call of `ClientCaller` with all its retries. It may send several requests: each attempt sends one, and a
call that consists of others sends theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from semel.client.access import Address
from semel.client.errors import CallError


class ObservedCall(Protocol):
    """One call that is under way."""

    def retried(self, error: CallError, pause: float) -> None:
        """An attempt has failed; the next one follows after `pause` seconds."""

    def ended(self, error: BaseException | None) -> None:
        """The call has ended: with a result, or with an error. In the task or thread that began it."""


class CallObserver(Protocol):
    """Watches all calls of a client, in the tasks or threads that make them. It must not raise."""

    def begin(self) -> ObservedCall:
        """A call begins."""

    def sending(self, address: Address, method: str, path: str) -> Mapping[str, str]:
        """A request, or the handshake of a WebSocket, is about to be sent: returns headers to be added."""

    def carried(self) -> Mapping[str, str]:
        """Members that a job carries to its worker, so that its run belongs to the trace of the submitter."""

    def job_run(
        self, kind: str, attempt: int, client: Mapping[str, object] | None
    ) -> AbstractContextManager[Callable[[str], None]]:
        """A worker runs a job within the block; `client` is what the job carried. The block tells how the run ended:
        `completed`, `failed`, `deferred` or `dropped`.
        """

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """The answer to a request has come; `body` is empty if it is read piece by piece."""
