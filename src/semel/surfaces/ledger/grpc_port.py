"""The gRPC port of the ledger: open if it is enabled and `semel[grpc]` is installed."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from semel.server.context import Context
from semel.server.http.tls import HTTP2
from semel.server.listen import ListenError, cannot_listen
from semel.server.settings import settings_of
from semel.surfaces.ledger.grpc import is_installed
from semel.surfaces.ledger.service import LedgerService
from semel.surfaces.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from semel.surfaces.ledger.grpc.listener import LedgerGrpc

_log = logging.getLogger("semel.server")

GRPC_PORT = 50_051
"""The default port. If it is in use, the server starts without gRPC."""
_FLAG = "--ledger-grpc-port"


class LedgerGrpcPort:
    """Opens the port, or logs why it is closed. If a configured port cannot be opened, the start fails."""

    def __init__(self, context: Context, service: LedgerService, others: Mapping[str, LedgerService]) -> None:
        """`others` are the ledgers of the other namespaces, which the port serves too."""
        self._context = context
        self._service = service
        self._others = others
        self._host: LedgerGrpc | None = None

    async def start(self) -> None:
        """Open the port, if it is enabled."""
        wanted = settings_of(self._context.settings, LedgerSettings).ledger_grpc_port
        if wanted and not is_installed():
            if wanted > 0:
                raise ListenError(f"The ledger's gRPC port needs semel[grpc]: install it, or set {_FLAG} 0.")
            _log.info("gRPC is off: it needs semel[grpc]")
        elif wanted:
            await self._listen(wanted)

    async def stop(self, seconds: float) -> None:
        """Wait for open calls, at most this number of seconds, then close."""
        if self._host is not None:
            await self._host.stop(seconds)

    async def _listen(self, wanted: int) -> None:
        from semel.surfaces.ledger.grpc.listener import make_listener  # noqa: PLC0415 - only there with semel[grpc]

        grpc = make_listener(self._context, self._service, self._others)
        address, port = self._context.settings.host, wanted if wanted > 0 else GRPC_PORT
        try:
            tls = self._context.tls
            await grpc.start(address, port, None if tls is None else tls.context(HTTP2))
        except OSError as error:
            # The message of asyncio is long; the text of the error number is enough.
            refused = cannot_listen(address, port, os.strerror(error.errno or 0), _FLAG)
            if wanted > 0:
                raise refused from error
            _log.warning("gRPC is off: %s", refused)
            return
        self._host = grpc
        _log.info("gRPC listens", extra={"port": grpc.port})
