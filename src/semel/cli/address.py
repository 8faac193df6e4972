"""Server URLs from the command line; an invalid one is a usage error."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

DEFAULT_URL = "http://127.0.0.1:8788"
DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(NamedTuple):
    """The parts of a base URL. `base` is the path that a proxy may put before the server's own, without final slash."""

    url: str
    is_secure: bool
    host: str
    port: int
    base: str

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def parse_address(text: str) -> Address:
    """The address in a URL; a ValueError says what is wrong with it."""
    parts = urlsplit(text)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("a server's URL looks like http://127.0.0.1:8788")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("a server's URL has no user, query or fragment; tokens go into SEMEL_TOKEN or --token-file")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a server's URL is plain ASCII without spaces")
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return Address(text.rstrip("/"), parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


class AddressType(click.ParamType[Address]):
    """An option that takes a server's URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """The address, or a usage error."""
        if isinstance(value, Address):
            return value
        try:
            return parse_address(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
