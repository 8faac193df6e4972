"""Remote addresses: parses networks of settings, and maps an address to the key under which limits count it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

REMEMBERED_ADDRESSES = 4_096

Network = IPv4Network | IPv6Network


def networks_of(text: str) -> tuple[Network, ...]:
    """Addresses and networks, separated by commas; `ValueError` for anything else."""
    return tuple(ip_network(one.strip()) for one in text.split(",") if one.strip())


@lru_cache(REMEMBERED_ADDRESSES)
def counted_as(address: str, uncounted: tuple[Network, ...]) -> str:
    """The key under which connections of an address are counted: the address, or the /64 of IPv6; empty if not
    counted.
    """
    try:
        one = ip_address(address.partition("%")[0])
    except ValueError:
        return ""  # a transport without addresses
    one = (one.ipv4_mapped or one) if one.version == 6 else one
    if any(one in network for network in uncounted):
        return ""
    return str(one) if one.version == 4 else str(ip_network((one, 64), strict=False))
