"""The ledger on the server: the service behind all transports, HTTP mapping and gRPC."""

from semel.contracts.ledger.wire.paths import PREFIX
from semel.server.ledger.host import LedgerHost

__all__ = ["PREFIX", "LedgerHost"]
