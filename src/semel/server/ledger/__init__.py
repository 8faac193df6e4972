"""The ledger on the server's listeners: the desk that every wire comes to, and the HTTP mapping."""

from semel.contracts.ledger.wire.paths import PREFIX
from semel.server.ledger.host import LedgerHost

__all__ = ["PREFIX", "LedgerHost"]
