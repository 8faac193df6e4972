"""The application of a process with several namespaces: it passes each request to the application of its namespace.

A path below `/ns/NAME/` belongs to that namespace, whose application gets the path without this prefix. Every other
path belongs to the default namespace, which answers 404 for a name that the process does not serve. A process with one
namespace does not use this class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from semel.kernel.errors import Refusal
from semel.kernel.namespace import DEFAULT
from semel.server.app import App
from semel.server.context import NAMESPACE_PATHS
from semel.server.http.answer import Answer
from semel.server.http.application import UpgradedConnection
from semel.server.http.request import Request


class NamespaceApp:
    """The applications of all namespaces. Used on the event loop only."""

    def __init__(self, apps: Mapping[str, App]) -> None:
        """`apps` has the application of each namespace by its name, that of the default one included."""
        self._default = apps[DEFAULT]
        self._apps = apps
        self._by_path = {name.encode(): (name, app) for name, app in apps.items() if name != DEFAULT}

    def handle(self, request: Request) -> Answer | None:
        """Answer one request in its namespace."""
        if request.raw_path.startswith(NAMESPACE_PATHS):
            part, slash, rest = request.raw_path[len(NAMESPACE_PATHS) :].partition(b"/")
            found = self._by_path.get(part)
            if found is not None:
                request.namespace, app = found
                request.raw_path = slash + rest
                return app.handle(request)
        return self._default.handle(request)

    def failed(self, request: Request, error: Exception) -> Answer:
        """The refusal for an error, in the format of the surface."""
        return self._of(request).failed(request, error)

    def answered(self, request: Request, status: int) -> None:
        """Count an answer in its namespace."""
        self._of(request).answered(request, status)

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal of the host for input that never became a request."""
        self._default.refused(refusal)

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The WebSocket handler of a path; None without one."""
        if raw_path.startswith(NAMESPACE_PATHS):
            part, slash, rest = raw_path[len(NAMESPACE_PATHS) :].partition(b"/")
            found = self._by_path.get(part)
            return None if found is None else found[1].socket_at(slash + rest)
        return self._default.socket_at(raw_path)

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """Whether a local address is that of the control listener."""
        return self._default.is_control(address)

    def _of(self, request: Request) -> App:
        return self._apps[getattr(request, "namespace", DEFAULT)]
