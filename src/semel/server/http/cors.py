"""CORS and DNS rebinding: which web pages may call this server, by the Host and the Origin of a request.

A browser sends the page's origin with every request that can write, and with every request the name that the page used
for the server. Both are checked before any surface handles the request, and in WebSocket handshakes:

- If callers need no credential (development mode), only loopback names are accepted as Host and only loopback origins
  as Origin. Otherwise any page that a developer opens could read and write, directly or after its own name was made to
  resolve to 127.0.0.1 (DNS rebinding). The settings may name further hosts and origins, but not `*`.
- If callers need a credential, any host and any origin are accepted unless the settings name some: a browser does not
  add a bearer token by itself, so a foreign page can do no more than any caller without a credential.
- A host that is an IP address is accepted if the server listens beyond loopback: no name was resolved to reach it.
- A page whose origin is the host and port that it calls is accepted together with its host.

A request without Origin comes from no page that could write, and one without Host from no browser. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from semel.kernel.errors import Refusal
from semel.server.http.answer import Header

ANY = b"*"
REFUSED = "ORIGIN_REFUSED"
"""The name of the event in the audit log."""
MAX_HOST_BYTES = 256
"""Limit on the bytes of a Host header; a longer one is refused."""
MAX_SHOWN = 128
"""Limit on the characters of a refused host or origin in the audit log."""

_PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    (b"access-control-max-age", b"86400"),
)
_USUAL_HEADERS = b"authorization, content-type"
_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(:[0-9]{0,5})?")
_ORIGIN = re.compile(rb"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(:[0-9]{1,5})?")
_FIELD_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_LOOPBACK_V4, _LOOPBACK_V6 = ip_network("127.0.0.0/8"), ip_address("::1")
_WEB = (b"http", b"https")

_FOREIGN_HOST = (
    "Without credentials this server accepts only loopback names, such as localhost; call it by one, or add this "
    "host to SEMEL_ALLOWED_HOSTS."
)
_FOREIGN_ORIGIN = (
    "Without credentials this server accepts requests only from pages of this machine; serve the page from localhost, "
    "or add its origin to SEMEL_ALLOWED_ORIGINS."
)
_UNLISTED_HOST = "This server does not accept this host name; call it by one of SEMEL_ALLOWED_HOSTS."
_UNLISTED_ORIGIN = "Pages of this origin may not call this server; SEMEL_ALLOWED_ORIGINS lists the allowed origins."


class Provenance(NamedTuple):
    """The Host and Origin headers of a request."""

    hosts: Sequence[bytes]
    origins: Sequence[bytes]
    is_preflight: bool = False
    wanted_headers: bytes | None = None

    @property
    def origin(self) -> bytes | None:
        """The origin of the page; None if the request does not come from a page."""
        return self.origins[0] if self.origins else None

    @property
    def shown(self) -> dict[str, str]:
        """Host and origin for the audit log."""
        named = {"host": self.hosts, "origin": self.origins}
        return {name: values[0].decode("latin-1")[:MAX_SHOWN] for name, values in named.items() if values}


class OriginPolicy(NamedTuple):
    """The policy, created once from the settings."""

    is_open: bool
    """Whether callers need no credential."""
    is_loopback: bool
    """Whether the server listens on loopback only."""
    hosts: frozenset[bytes]
    """Allowed hosts; empty allows any if credentials are needed."""
    origins: frozenset[bytes]

    def refusal(self, provenance: Provenance) -> Refusal | None:
        """The reason to refuse a request; None for one that is allowed."""
        if not all(map(self._takes_host, provenance.hosts)):
            return Refusal("FORBIDDEN_ORIGIN", _FOREIGN_HOST if self.is_open else _UNLISTED_HOST)
        if not all(self._takes_origin(origin, provenance.hosts) for origin in provenance.origins):
            return Refusal("FORBIDDEN_ORIGIN", _FOREIGN_ORIGIN if self.is_open else _UNLISTED_ORIGIN)
        return None

    def _takes_host(self, host: bytes) -> bool:
        if not self.is_open and not self.hosts:
            return True
        name = _name_in(host) if len(host) <= MAX_HOST_BYTES else None
        if name is None:
            return False
        if is_loopback_name(name) or name in self.hosts:
            return True
        if not self.is_loopback and _address(name) is not None:
            return True
        return any(b"*" + name[at:] in self.hosts for at in range(len(name)) if name[at : at + 1] == b".")

    def _takes_origin(self, origin: bytes, hosts: Sequence[bytes]) -> bool:
        origin = origin.lower()
        found = _ORIGIN.fullmatch(origin) if len(origin) <= MAX_HOST_BYTES else None
        if not self.is_open and not self.origins:
            return found is not None or origin == b"null"
        if found is None:
            return False
        scheme, name, port = found.groups()
        if origin in self.origins:
            return True
        is_of_host = (name + (port or b"")) in [host.lower() for host in hosts]
        return scheme in _WEB and (is_of_host or (self.is_open and is_loopback_name(name)))


@lru_cache(maxsize=8)
def make_policy(hosts: str, origins: str, *, is_open: bool, is_loopback: bool) -> OriginPolicy:
    """The policy for comma-separated lists; `*` in a list allows any."""
    return OriginPolicy(is_open, is_loopback, _unless_any(check_hosts(hosts)), _unless_any(check_origins(origins)))


def check_hosts(text: str) -> frozenset[bytes]:
    """The host names in a list; `ValueError` for a name that no Host header could match."""
    names = _listed(text)
    for name in names - {ANY}:
        found = _HOST.fullmatch(name.removeprefix(b"*."))
        if found is None or found[2] is not None:
            raise ValueError(name)
    return names


def check_origins(text: str) -> frozenset[bytes]:
    """The origins in a list; `ValueError` for an origin that no browser would send."""
    origins = frozenset(origin.rstrip(b"/") for origin in _listed(text))
    if not all(origin == ANY or _ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError(text)
    return origins


def provenance_in(headers: Iterable[Header]) -> Provenance:
    """The Host and Origin headers; header names are in lower case."""
    hosts, origins, is_preflight, wanted = [], [], False, None
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origins.append(value)
        elif name == b"access-control-request-method":
            is_preflight = True
        elif name == b"access-control-request-headers":
            wanted = value
    return Provenance(hosts, origins, is_preflight, wanted)


def shared_with(origin: bytes) -> Header:
    """The CORS headers that let a page of an allowed origin read an answer. They vary with the origin."""
    return (b"access-control-allow-origin", origin)


def preflight_headers(provenance: Provenance) -> list[Header]:
    """The answer to a CORS preflight; any requested headers are allowed."""
    wanted = provenance.wanted_headers
    is_fine = wanted is not None and _FIELD_NAMES.fullmatch(wanted) is not None
    return [*_PREFLIGHT, (b"access-control-allow-headers", wanted if wanted and is_fine else _USUAL_HEADERS)]


@lru_cache(maxsize=256)
def is_loopback_name(name: bytes) -> bool:
    """Whether every resolver resolves the name, given without its port, to this machine."""
    if name == b"localhost" or name.endswith(b".localhost"):
        return True
    address = _address(name)
    return address is not None and (address == _LOOPBACK_V6 or address in _LOOPBACK_V4)


@lru_cache(maxsize=256)
def _name_in(host: bytes) -> bytes | None:
    """The name in a Host header, without its port; None for an invalid one."""
    found = _HOST.fullmatch(host.lower())
    return None if found is None else found[1]


@lru_cache(maxsize=256)
def _address(name: bytes) -> IPv4Address | IPv6Address | None:
    is_bracketed = name.startswith(b"[")
    try:
        found = ip_address(name.strip(b"[]").decode("ascii"))
    except ValueError:
        return None
    return found if is_bracketed == isinstance(found, IPv6Address) else None


def _listed(text: str) -> frozenset[bytes]:
    return frozenset(name.strip().lower().encode() for name in text.split(",") if name.strip())


def _unless_any(items: frozenset[bytes]) -> frozenset[bytes]:
    return frozenset() if ANY in items else items
