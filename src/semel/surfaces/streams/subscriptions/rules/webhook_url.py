"""Which webhook addresses are allowed: the URL is checked at creation, the IP address at each connection.

| target | allowed |
|---|---|
| public address, `https` | always |
| loopback | in development mode, or with `streams_webhook_private` |
| private address | with `streams_webhook_private` |
| link-local, metadata services, multicast, unspecified, reserved | never |
| `http` | only to loopback and private addresses that are allowed |

A name may resolve to any address, and to another one the next time. So the addresses of a name are checked when a
connection is made, and the connection goes to the checked address itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from semel.kernel.errors import Refused

MAX_URL_BYTES = 2_048
_METADATA = frozenset(map(ip_address, ("169.254.169.254", "100.100.100.200", "fd00:ec2::254", "168.63.129.16")))
_NAT64 = ip_network("64:ff9b::/96")
_DISCARD = ip_network("100::/64")
_SHARED = ip_network("100.64.0.0/10")


class AddressKind(Enum):
    """What an address is."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    FORBIDDEN = "forbidden"


class AddressPolicy(NamedTuple):
    """The addresses besides public ones that webhooks may go to."""

    loopback: bool
    private: bool

    def allows(self, kind: AddressKind, *, is_secure: bool) -> bool:
        """Whether a connection to an address of that kind may be made."""
        if kind is AddressKind.LOOPBACK:
            return self.loopback or self.private
        if kind is AddressKind.PRIVATE:
            return self.private
        return kind is AddressKind.PUBLIC and is_secure


class WebhookTarget(NamedTuple):
    """A webhook URL in parts."""

    is_secure: bool
    host: str
    port: int
    target: str
    """Path and query, as they are sent."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_secure else 80) else f"{host}:{self.port}"


def kind_of(address: IPv4Address | IPv6Address) -> AddressKind:
    """What an address is; one that carries an IPv4 address is what that is."""
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return kind_of(inner)
    if address in _METADATA or address.is_multicast or address.is_unspecified or address.is_link_local:
        return AddressKind.FORBIDDEN
    if address.is_loopback:
        return AddressKind.LOOPBACK
    if address.is_reserved or (isinstance(address, IPv6Address) and address in _DISCARD):
        return AddressKind.FORBIDDEN
    if isinstance(address, IPv4Address) and (address in _SHARED or int(address) >> 24 == 0):
        return AddressKind.PRIVATE if address in _SHARED else AddressKind.FORBIDDEN
    if address.is_private or (isinstance(address, IPv6Address) and address.is_site_local):
        return AddressKind.PRIVATE
    return AddressKind.PUBLIC if address.is_global else AddressKind.FORBIDDEN


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for; None if it stands for none."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    assert isinstance(_NAT64, IPv6Network)
    number = int(address)
    if address in _NAT64 or (number >> 32 == 0 and number > 1):
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def parse_target(url: str) -> WebhookTarget:
    """The parts of a URL; `Refused` if it is not one of a webhook."""
    if len(url) > MAX_URL_BYTES or not url.isascii() or not url.isprintable() or " " in url:
        raise rejected(f"The webhook URL must have at most {MAX_URL_BYTES} printable ASCII characters without spaces.")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise rejected("The webhook URL is not a valid URL.") from None
    if parts.scheme not in ("https", "http") or not host:
        raise rejected("The webhook URL must begin with https:// and a host.")
    if parts.username is not None or parts.password is not None or parts.fragment or "\\" in url:
        raise rejected("The webhook URL must not have a user, a password or a fragment.")
    is_secure = parts.scheme == "https"
    if port == 0:
        raise rejected("The webhook URL must have a port from 1 to 65535.")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(is_secure, host.rstrip("."), port or (443 if is_secure else 80), target)


def check_url(url: str, policy: AddressPolicy) -> None:
    """Check a URL before it is stored, as far as that is possible without resolving its name."""
    target = parse_target(url)
    literal = _literal(target.host)
    if literal is not None:
        if not policy.allows(kind_of(literal), is_secure=target.is_secure):
            raise not_allowed()
        return
    is_local = target.host == "localhost" or target.host.endswith(".localhost")
    if is_local and not policy.allows(AddressKind.LOOPBACK, is_secure=target.is_secure):
        raise not_allowed()
    if not is_local and not target.is_secure and not policy.private:
        raise rejected("The webhook URL must use https.")


def check_addresses(addresses: Iterable[str], policy: AddressPolicy, *, is_secure: bool) -> bool:
    """Whether a connection may be made to a host with these addresses: each of them must be allowed."""
    found = [_literal(address.partition("%")[0]) for address in addresses]
    return bool(found) and all(one is not None and policy.allows(kind_of(one), is_secure=is_secure) for one in found)


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def rejected(detail: str) -> Refused:
    """The refusal of a URL."""
    return Refused("WEBHOOK_URL_REJECTED", detail)


def not_allowed() -> Refused:
    """The refusal of an address."""
    return rejected("Webhooks to private, loopback, link-local and metadata addresses are not allowed here.")
