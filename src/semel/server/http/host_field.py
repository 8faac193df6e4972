"""The Host header: its syntax, and which host names are those of this machine.

RFC 9112 requires 400 if an HTTP/1.1 request has no Host, and if any request has two or a malformed one: a proxy and a
server that each use a different one could be exploited against each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from semel.server.http.answer import Header

VERSIONS = ("1.1", "1.0")

_FIELD = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_LOOPBACK = re.compile(rb"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?")


def head_flaw(version: str, headers: Sequence[Header]) -> str | None:
    """What is wrong with version or Host, as a sentence; None if both are valid."""
    if version not in VERSIONS:
        return "This server speaks HTTP/1.1 and HTTP/1.0."
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        return "Send exactly one Host header."
    if not hosts:
        return None if version == "1.0" else "Send a Host header: HTTP/1.1 needs one."
    return None if _FIELD.fullmatch(hosts[0].strip()) else "The Host header must be a host with an optional port."


def is_own(host: bytes, address: str) -> bool:
    """Whether a Host names this machine: a loopback name, or the local address of the connection."""
    name = host.lower()
    if _LOOPBACK.fullmatch(name):
        return True
    own = f"[{address}]" if ":" in address else address
    return re.fullmatch(re.escape(own.lower().encode()) + rb"(?::[0-9]{1,5})?", name) is not None
