"""The headers that the proxy passes on, as pure functions.

| field | request | answer |
|---|---|---|
| Connection and the fields it names | removed | removed |
| Keep-Alive, Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade | removed | removed |
| Proxy-Authenticate, Proxy-Authorization | removed | removed |
| Expect | removed: the proxy answers it | - |
| Host | kept, or that of the upstream | - |
| X-Forwarded-For, -Proto, -Host | set; with trust the first is appended to, and the others are kept | - |
| Forwarded | removed; with trust kept | - |
| Via | appended to | kept |
| Content-Length | kept while the body is streamed, else that of the body | kept |
| Date | - | added to an answer that has none (RFC 9110, 6.6.1) |
| all others | kept, in their order | kept, in their order |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from semel.once.exchange import HOP_BY_HOP

Field = tuple[bytes, bytes]

OURS = frozenset({b"expect", b"content-length", b"host", b"via"})
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
VIA = "1.1 semel"


class Peer(NamedTuple):
    """The client, and the forwarding headers about it."""

    address: str
    scheme: str
    host: str
    """The upstream's Host header; empty to pass on the client's."""
    is_trusted: bool
    """Whether the client's X-Forwarded headers are trusted."""


def passed_on(fields: Iterable[Field]) -> list[Field]:
    """The headers without the hop-by-hop ones (RFC 9110, 7.6.1)."""
    listed = list(fields)
    named = {
        token.strip().lower() for name, value in listed if name.lower() == b"connection" for token in value.split(b",")
    }
    return [(name, value) for name, value in listed if name.lower() not in HOP_BY_HOP | named]


def values_of(fields: Iterable[Field], name: bytes) -> list[bytes]:
    """The values of a field, in order."""
    return [value for key, value in fields if key.lower() == name]


def unsendable(fields: Iterable[Field]) -> str:
    """The first header whose value cannot be passed on unchanged, or an empty string.

    The HTTP client encodes UTF-8, which would change other bytes, so they are refused before a key is claimed.
    """
    for name, value in fields:
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return name.decode("ascii")
    return ""


def request_fields(fields: Sequence[Field], peer: Peer) -> list[tuple[str, str]]:
    """The headers for the upstream, without those that frame the body. Every value is UTF-8."""
    dropped = OURS if peer.is_trusted else OURS | FORWARDED
    kept = [(name, value) for name, value in passed_on(fields) if name.lower() not in dropped]
    found = [(name.decode("ascii"), value.decode()) for name, value in kept]
    host = _first(fields, b"host")
    via = ", ".join([*(value.decode() for value in values_of(fields, b"via")), VIA])
    sent = peer.host or host  # an HTTP/1.0 client may have sent none: then the URL's host is sent
    return [*([("host", sent)] if sent else []), *_forwarded(found, peer, host), ("via", via)]


def _forwarded(found: list[tuple[str, str]], peer: Peer, host: str) -> list[tuple[str, str]]:
    addresses = [value for name, value in found if name == "x-forwarded-for"]
    rest = [one for one in found if one[0] != "x-forwarded-for"]
    told = {name for name, _ in rest}
    rest.append(("x-forwarded-for", ", ".join([*addresses, peer.address])))
    if "x-forwarded-proto" not in told:
        rest.append(("x-forwarded-proto", peer.scheme))
    if "x-forwarded-host" not in told and host:
        rest.append(("x-forwarded-host", host))
    return rest


def answer_fields(fields: Iterable[Field], date: bytes) -> list[Field]:
    """The headers for the client."""
    kept = passed_on(fields)
    return kept if values_of(kept, b"date") else [*kept, (b"date", date)]


def is_websocket(fields: Iterable[Field]) -> bool:
    """Whether a request asks for a WebSocket."""
    return any(b"websocket" in value.lower() for value in values_of(fields, b"upgrade"))


def body_length(fields: Sequence[Field]) -> int | None:
    """The length of a request's body, or None if it is chunked. The server has validated both headers."""
    if values_of(fields, b"transfer-encoding"):
        return None
    return int(_first(fields, b"content-length") or "0")


def _first(fields: Iterable[Field], name: bytes) -> str:
    values = values_of(fields, name)
    return values[0].decode() if values else ""
