"""The OpenAPI document of this version of the server: its own operations, and those of every row of the registry."""

from __future__ import annotations

from functools import cache

from semel import __version__
from semel.server.console.operations import OPERATIONS as CONSOLE_OPERATIONS
from semel.server.openapi.document import OperationGroup, openapi_bytes
from semel.server.ops.operations import OPERATIONS
from semel.server.ops.token_operations import OPERATIONS as TOKEN_OPERATIONS
from semel.server.writes.find_operations import OPERATIONS as WRITE_OPERATIONS
from semel.surfaces.registry import SURFACES


def operation_groups() -> tuple[OperationGroup, ...]:
    """Every declared operation of the server, by surface."""
    own = OperationGroup("server", "Health, metrics and this document", OPERATIONS)
    tokens = OperationGroup("tokens", "Tokens in the store", TOKEN_OPERATIONS)
    writes = OperationGroup("writes", "The life of a write", WRITE_OPERATIONS)
    console = OperationGroup("console", "The pages of the console", CONSOLE_OPERATIONS)
    surfaces = (OperationGroup(row.name, row.about, row.operations) for row in SURFACES)
    return own, tokens, writes, console, *surfaces


@cache
def api_document() -> bytes:
    """The document as JSON; the same bytes on every node of one version."""
    return openapi_bytes(operation_groups(), __version__)
