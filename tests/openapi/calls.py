"""Every declared operation with each of its methods, and a call of it in one way or another."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from semel.server.api_document import operation_groups
from semel.server.openapi.document import HOST_ERRORS, status_of
from semel.server.openapi.operation import HttpOperation
from tests.harness.server import HOST

OPERATIONS = tuple(one for group in operation_groups() for one in group.operations)
CALLS = tuple((one, method) for one in OPERATIONS for method in one.methods)
HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
NONE: Mapping[str, str] = MappingProxyType({})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class Told(NamedTuple):
    """An answer; one that does not end has no body."""

    status: int
    headers: Mapping[str, str]
    """With their names in small letters."""
    body: bytes


def filled(path: str) -> str:
    """A path template with names that nothing has."""
    names = {"job_id": "job_" + "0" * 32, "org": "1000000000000001", "vault": "1000000000000002"}
    names |= {"height": "1", "committed_id": "1", "txId": "00" * 16}
    return re.sub(r"\{([^}]*)\}", lambda found: names.get(found[1], "x"), path)


def statuses_of(one: HttpOperation) -> set[int]:
    """Those that the document has for an operation."""
    return {success.status for success in one.successes} | {status_of(error) for error in (*one.errors, *HOST_ERRORS)}


def asked(
    port: int, method: str, path: str, headers: Mapping[str, str] = NONE, sent: bytes | None = None, query: str = ""
) -> Told:
    """The answer on a connection of its own; a method that has a body gets one, which is empty JSON unless given."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        body = (b"{}" if sent is None else sent) if method in ("POST", "PUT", "PATCH") else None
        kind = {} if body is None or "content-type" in headers else {"content-type": "application/json"}
        connection.request(method, filled(path) + query, body, {**headers, **kind})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Told(answer.status, named, b"" if answer.status == 101 else answer.read())
    finally:
        connection.close()


def usual(one: HttpOperation) -> Mapping[str, str]:
    """The headers that an operation cannot do without."""
    return HANDSHAKE if one.is_websocket else NONE
